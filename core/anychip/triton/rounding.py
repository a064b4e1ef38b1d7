"""Activations quantized to 8 bits, to be multiplied with weights of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.coding import Coding
from anychip.triton.powers import power_of_two
from anychip.triton.programs.rounding import round_rows


@dataclass(frozen=True, slots=True)
class Rounded:
    """A matrix [T, K] quantized to 8 bits: number = code * scale of its group of its row, or a sum of such."""

    codes: torch.Tensor
    """[terms * T, K] int8 or 8-bit floats."""
    scales: torch.Tensor
    """[G, T] float32."""
    coding: Coding
    dtype: torch.dtype
    """The type that it had before, which products with it have again."""

    @classmethod
    def room(cls, rows: int, width: int, coding: Coding, like: torch.Tensor) -> Rounded:
        """Uninitialised memory for a matrix [rows, width] of `like`'s type, on its device."""
        groups = -(-width // coding.group) if coding.group else 1
        return cls(
            torch.empty(coding.terms * rows, width, dtype=coding.codes, device=like.device),
            torch.empty(groups, rows, device=like.device),
            coding,
            like.dtype,
        )

    @property
    def tokens(self) -> int:
        """T."""
        return self.scales.shape[1]


def round_tokens(chip: Chip, x: torch.Tensor, kind: Coding) -> Rounded:
    """Quantize x [T, K], contiguous along K."""
    out = Rounded.room(x.shape[0], x.shape[1], kind, x)
    width = power_of_two(x.shape[1], 1)
    round_rows[(x.shape[0],)](
        x, out.codes, out.scales, x.stride(0), K=x.shape[1], BLOCK=width, num_warps=chip.tuning.warps(width // 16),
        **kind.launch, **chip.order,
    )  # fmt: skip
    return out
