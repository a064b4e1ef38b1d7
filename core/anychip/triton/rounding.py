"""Activations quantized to 8 bits with a scale a token, to be multiplied with weights of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.powers import power_of_two
from anychip.triton.programs.rounding import round_rows


@dataclass(frozen=True, slots=True)
class Rounded:
    """A matrix [T, K] quantized to 8 bits: number = code * scale of its row."""

    codes: torch.Tensor
    """[T, K] int8 or 8-bit floats."""
    scales: torch.Tensor
    """[T, 1] float32."""
    dtype: torch.dtype
    """The type that it had before, which products with it have again."""

    @classmethod
    def room(cls, rows: int, width: int, codes: torch.dtype, like: torch.Tensor) -> Rounded:
        """Uninitialised memory for a matrix [rows, width] of `like`'s type, on its device."""
        return cls(
            torch.empty(rows, width, dtype=codes, device=like.device),
            torch.empty(rows, 1, device=like.device),
            like.dtype,
        )


def coding(codes: torch.dtype | None) -> dict[str, float | bool]:
    """Arguments of a launch that quantizes to `codes`: the largest, whether they are integers; None: it does not."""
    if codes is None:
        return {"LARGEST": 0, "WHOLE": False}
    whole = not codes.is_floating_point
    return {"LARGEST": 127 if whole else torch.finfo(codes).max, "WHOLE": whole}


def round_tokens(chip: Chip, x: torch.Tensor, dtype: torch.dtype) -> Rounded:
    """Quantize x [T, K], contiguous along K, to codes of `dtype`."""
    out = Rounded.room(x.shape[0], x.shape[1], dtype, x)
    width = power_of_two(x.shape[1], 1)
    round_rows[(x.shape[0],)](
        x, out.codes, out.scales, x.stride(0), K=x.shape[1], BLOCK=width, num_warps=chip.tuning.warps(width // 16),
        **coding(dtype), **chip.order,
    )  # fmt: skip
    return out
