"""Linear layers with weights of 4 bits in fragments. Their programs are in Gluon, which older Tritons lack."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.gluon_programs.fragment_unpack import unpack_fragments
from anychip.triton.gluon_programs.fragments import multiply_fragments
from anychip.triton.linear.shapes import fragment_shape
from anychip.triton.linear.split import Counters
from anychip.triton.packing import BLOCK_ROWS, CHUNK, Codes

UNPACKED = 4
"""Blocks of 16 rows that a program dequantizes, a warp each."""


@dataclass(frozen=True, slots=True)
class FragmentLinear:
    """Products with `Codes` in fragments on one chip."""

    chip: Chip
    counters: Counters

    def multiply(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """x W^T + bias, x [T, K] in 16 bits -> [T, N]."""
        tokens, rows = x.shape[0], weight.rows
        shape = fragment_shape(self.chip, tokens, rows, weight.columns)
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.device)
        partial = torch.empty(shape.partial, device=x.device) if shape.partial else None
        multiply_fragments[(shape.tiles, shape.split, -(-tokens // shape.tile.tokens))](
            x, weight.values, weight.scale, weight.zero_point, bias, out, partial, self.counters.on(x.device), tokens,
            x.stride(0), N=rows, K=weight.columns, GROUP=weight.group_size, ZEROS=weight.zero_point is not None,
            BIAS=bias is not None, **shape.launch, **self.chip.order,
        )  # fmt: skip
        return out

    def unpack(self, weight: Codes, dtype: torch.dtype) -> torch.Tensor:
        """Dequantize the matrix [N, K] to `dtype`."""
        rows, columns = weight.rows, weight.columns
        out = torch.empty(rows, columns, dtype=dtype, device=weight.values.device)
        unpack_fragments[(-(-rows // (UNPACKED * BLOCK_ROWS)), columns // CHUNK)](
            weight.values, weight.scale, weight.zero_point, out, N=rows, K=columns, GROUP=weight.group_size,
            ZEROS=weight.zero_point is not None, BLOCKS=UNPACKED, WARPS=UNPACKED, num_warps=UNPACKED,
            **self.chip.order,
        )  # fmt: skip
        return out
