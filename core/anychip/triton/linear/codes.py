"""Linear layers whose weights stay quantized.

Few tokens: codes are read and become numbers in registers. Weights of 8 bits with one scale a row: tokens are quantized
as well, and both sides multiplied in 8 bits. All else is dequantized to memory and multiplied by torch's library.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from anychip.triton.chip import Chip
from anychip.triton.coding import GROUP
from anychip.triton.descriptors import aligned, tiles_of
from anychip.triton.linear.shapes import ThinShape, code_shape, packed_shape, whole_tile
from anychip.triton.linear.split import Counters, partial_sums
from anychip.triton.packing import Codes
from anychip.triton.powers import padded
from anychip.triton.programs.codes import multiply_bytes, multiply_rounded
from anychip.triton.programs.grouped import multiply_grouped
from anychip.triton.programs.nibbles import multiply_nibbles, unpack
from anychip.triton.rounding import Rounded, round_tokens
from anychip.triton.rows import unit_stride

if TYPE_CHECKING:
    from anychip.triton.linear.fragments import FragmentLinear

THIN = 64
"""Most tokens whose products are ours where reading codes of 8 bits is all the work."""
UNPACKED = 64
"""Rows of a program that dequantizes words of 4-bit codes."""
MANY_TOKENS = 128
"""Tokens of a program's tile where there are more than THIN and no library multiplies 8 bits."""
ALIGNED = 16
"""Torch multiplies matrices of 8 bits whose rows and columns are multiples of this."""


@dataclass(frozen=True, slots=True)
class CodedLinear:
    """Products with prepared `Codes` on one chip. T tokens, K inputs, N outputs."""

    chip: Chip
    counters: Counters = field(default_factory=Counters)

    def linear(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """x W^T + bias, x [T, K] -> [T, N] in x's type."""
        x = unit_stride(x)
        if self.rounds(weight, x.shape[0], x.dtype):
            return self.multiply(round_tokens(self.chip, x, weight.coding), weight, bias)
        if x.shape[0] <= self._few(weight, x.dtype):
            return self._thin(x, weight, bias)
        return functional.linear(x, self.dequantize(weight, x.dtype), bias)

    def _few(self, weight: Codes, dtype: torch.dtype) -> int:
        """Most tokens whose products read codes. Fragments are made for tokens of 16 bits: none of another type."""
        if weight.fragments:
            return self.chip.tuning.fragments_tokens if dtype.itemsize == 2 else 0
        return self.chip.tuning.codes_packed_tokens if weight.packed else THIN

    def rounds(self, weight: Codes, tokens: int, dtype: torch.dtype) -> bool:
        """Whether so many tokens of `dtype` are quantized too, which needs a weight of 8 bits with one scale a row.

        For more than THIN floats, torch's library has to take what comes: it is particular about sizes and types. What
        may not be rounded becomes two codes for each number, which hold as much as 16 bits.
        """
        if weight.packed or not weight.by_row or tokens < 2:
            return False
        floats = weight.values.is_floating_point()
        if weight.activation == "none":
            return not floats and dtype.itemsize == 2
        if tokens <= THIN or not self.chip.library_codes or not floats:
            return True
        whole = weight.values.shape[0] % ALIGNED == 0 and weight.columns % ALIGNED == 0
        return whole and dtype == torch.bfloat16

    def multiply(self, x: Rounded, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """Both sides in 8 bits: scales of tokens, one a row. x [T, K] -> [T, N]."""
        floats, copied = weight.values.is_floating_point(), self.chip.descriptors and aligned(weight.values)
        rows, columns = weight.values.shape
        shared = self.chip.tuning.codes_long and columns > 2 * rows  # inputs, which the library does not do
        ours = copied and (not floats or shared)
        if x.tokens <= THIN or (x.tokens <= MANY_TOKENS and ours):
            shape = code_shape(self.chip, x.tokens, rows, columns, not floats)
            return self._multiply_rounded(x, weight, bias, replace(shape, tiled=copied and not floats))
        if floats and self.chip.library_codes:
            return self._library(x, weight, bias)
        if copied and not floats:
            return self._grouped(x, weight, bias)
        tile, width = self.chip.tuning.codes_many, MANY_TOKENS if floats else THIN  # integers have sums of two kinds
        return self._multiply_rounded(x, weight, bias, ThinShape(tile.rows, width, tile.inputs, 1, tile.launch()))

    def dequantize(self, weight: Codes, dtype: torch.dtype) -> torch.Tensor:
        """The matrix [N, K] in `dtype`."""
        if weight.fragments:
            return self._fragments.unpack(weight, dtype)
        if not weight.packed:
            groups = weight.values.to(torch.float32).view(len(weight.values), -1, weight.group_size)
            return (groups * weight.scale.float().unsqueeze(-1)).view(weight.values.shape).to(dtype)
        rows, columns = weight.rows, weight.columns
        out = torch.empty(rows, columns, dtype=dtype, device=weight.values.device)
        unpack[(-(-rows // UNPACKED), len(weight.values))](
            weight.values, weight.scale, weight.zero_point, out, N=rows, K=columns, GROUP=weight.group_size,
            ZEROS=weight.zero_point is not None, BLOCK_N=UNPACKED, **self.chip.order,
        )  # fmt: skip
        return out

    @property
    def _fragments(self) -> FragmentLinear:
        from anychip.triton.linear.fragments import FragmentLinear  # whose programs not every Triton can read

        return FragmentLinear(self.chip, self.counters)

    def _thin(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        tokens, rows = x.shape[0], weight.values.shape[0]
        if weight.fragments:
            return self._fragments.multiply(x, weight, bias)
        if weight.packed:
            return self._nibbles(x, weight, bias)
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.device)
        height = 4 if tokens == 1 else 32
        multiply_bytes[(-(-rows // height),)](
            x, weight.values, weight.scale, bias, out, tokens, x.stride(0), weight.scale.stride(0), N=rows,
            K=weight.columns, GROUP=weight.group_size, BIAS=bias is not None, BLOCK_T=_columns(tokens), BLOCK_N=height,
            BLOCK_K=1024 if tokens == 1 else 128, num_warps=self.chip.tuning.warps(128),
            **self.chip.order,
        )  # fmt: skip
        return out

    def _nibbles(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        tokens, rows = x.shape[0], weight.rows
        shape = packed_shape(self.chip, tokens, rows, weight.columns)
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.device)
        multiply_nibbles[(shape.tiles(rows), shape.split, -(-tokens // shape.tokens))](
            x, weight.values, weight.scale, weight.zero_point, bias, out, partial_sums(shape, rows, x.device),
            self.counters.on(x.device), tokens, x.stride(0), N=rows, K=weight.columns, GROUP=weight.group_size,
            ZEROS=weight.zero_point is not None, BIAS=bias is not None, **shape.launch,
            **self.chip.order,
        )  # fmt: skip
        return out

    def _multiply_rounded(self, x: Rounded, weight: Codes, bias: torch.Tensor | None, shape: ThinShape) -> torch.Tensor:
        """A program for each tile of rows, part of the inputs and block of tokens."""
        tokens, rows = x.tokens, weight.values.shape[0]
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.codes.device)
        given = tiles = None
        if shape.tiled:
            given, tiles = (
                tiles_of(x.codes, shape.tokens, shape.inputs),
                tiles_of(weight.values, shape.rows, shape.inputs),
            )
        multiply_rounded[(shape.tiles(rows), shape.split, -(-tokens // shape.tokens))](
            x.codes, given, tiles, x.scales, weight.values, weight.scale, bias, out,
            partial_sums(shape, rows, out.device), self.counters.on(out.device), tokens, N=rows, K=weight.columns,
            GROUP=x.coding.group, TERMS=x.coding.terms, BIAS=bias is not None, TILED=shape.tiled, **shape.launch,
            **self.chip.order,
        )  # fmt: skip
        return out

    def _grouped(self, x: Rounded, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """Integers and many tokens, on chips that copy tiles by themselves."""
        tokens, (rows, columns) = x.tokens, weight.values.shape
        tile = whole_tile(self.chip, tokens, rows, x.coding)
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.codes.device)
        multiply_grouped[(-(-rows // tile.rows) * -(-tokens // tile.tokens),)](
            tiles_of(x.codes, tile.tokens, GROUP), tiles_of(weight.values, tile.rows, GROUP), x.scales, weight.scale,
            bias, out, tokens, N=rows, K=columns, GROUP=x.coding.group, TERMS=x.coding.terms, BIAS=bias is not None,
            BLOCK_K=GROUP, **tile.launch, **self.chip.order,
        )  # fmt: skip
        return out

    def _library(self, x: Rounded, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        columns, scales = weight.scale.float().view(1, -1), x.scales.view(-1, 1)
        return torch._scaled_mm(
            x.codes, weight.values.t(), scales, columns, bias=bias, out_dtype=x.dtype, use_fast_accum=True
        )


def _columns(tokens: int) -> int:
    return 1 if tokens == 1 else padded(tokens)
