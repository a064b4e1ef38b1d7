"""Activations in 8 bits, with a scale a token."""

from __future__ import annotations

import torch

from anychip.triton.chip import Chip
from anychip.triton.programs.codes import round_rows


def round_tokens(chip: Chip, x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x [T, K] as codes of `dtype` [T, K] and scales [T, 1] float32."""
    codes = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty(x.shape[0], 1, device=x.device)
    whole = dtype == torch.int8
    largest = 127.0 if whole else torch.finfo(dtype).max
    width = 1 << (x.shape[1] - 1).bit_length()
    round_rows[(x.shape[0],)](
        x, codes, scales, x.stride(0), K=x.shape[1], LARGEST=largest, WHOLE=whole, BLOCK=width,
        num_warps=chip.tuning.warps(width // 16), **chip.order,
    )  # fmt: skip
    return codes, scales
