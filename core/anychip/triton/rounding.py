"""Activations in 8 bits, with a scale a token, as products with codes multiply them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.powers import power_of_two
from anychip.triton.programs.rounding import round_rows


@dataclass(frozen=True, slots=True)
class Rounded:
    """Rows of numbers, rounded."""

    codes: torch.Tensor
    """[T, K] of 8 bits."""
    scales: torch.Tensor
    """[T, 1] float32."""
    dtype: torch.dtype
    """Of the numbers before."""

    @classmethod
    def room(cls, rows: int, width: int, codes: torch.dtype, like: torch.Tensor) -> Rounded:
        """Memory for numbers of `like`'s type, beside it."""
        return cls(
            torch.empty(rows, width, dtype=codes, device=like.device),
            torch.empty(rows, 1, device=like.device),
            like.dtype,
        )


def coding(codes: torch.dtype | None) -> dict[str, float | bool]:
    """What a launch is told of codes of 8 bits: the largest, and whether they are integers; None: numbers stay."""
    if codes is None:
        return {"LARGEST": 0, "WHOLE": False}
    whole = not codes.is_floating_point
    return {"LARGEST": 127 if whole else torch.finfo(codes).max, "WHOLE": whole}


def round_tokens(chip: Chip, x: torch.Tensor, dtype: torch.dtype) -> Rounded:
    """x [T, K], neighbours side by side, as codes of `dtype`."""
    out = Rounded.room(x.shape[0], x.shape[1], dtype, x)
    width = power_of_two(x.shape[1], 1)
    round_rows[(x.shape[0],)](
        x, out.codes, out.scales, x.stride(0), K=x.shape[1], BLOCK=width, num_warps=chip.tuning.warps(width // 16),
        **coding(dtype), **chip.order,
    )  # fmt: skip
    return out
