"""Linear layers whose weights stay quantized: read as codes for few tokens, in 8 bits or unpacked for many."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from anychip.errors import UserError
from anychip.triton.chip import Chip
from anychip.triton.programs.codes import multiply_bytes, multiply_rounded, scale_sums
from anychip.triton.programs.nibbles import multiply_nibbles, unpack
from anychip.triton.rounding import Rounded, round_tokens
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.shapes import ThinShape, code_shape, packed_shape
from anychip.triton.split import Counters, partial_sums
from anychip.weights.weight import Weight

CHUNK, PLANE = 128, 32
"""Inputs of 16 words of a row, and of a pair of their nibbles; see programs/nibbles.py."""
THIN = 64
"""Most tokens for which reading the codes is all the work."""
UNPACKED = 64
"""Rows of a program that unpacks."""
MANY_TOKENS = 128
"""Tokens of a program's tile where there are more, and no library takes them."""
ALIGNED = 16
"""Rows and columns that products in 8 bits come in multiples of."""
FORMATS = ("int4", "int8", "fp8")
EXPERT_FORMATS = ("int8", "fp8")
"""Those of stacked matrices, with a scale a row."""
NEGATIVE_ZERO = 0x80
"""Bits of -0 in e4m3fn, and of no number in e4m3fnuz."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A prepared weight: packed words [C, N, 16] int32 or codes [N, K] of 8 bits, and what they mean."""

    values: torch.Tensor
    scale: torch.Tensor
    """[N, G], or [G, N] where packed; zero points likewise."""
    zero_point: torch.Tensor | None
    group_size: int
    columns: int
    """K."""

    @property
    def packed(self) -> bool:
        """Whether a word holds eight codes."""
        return self.values.dtype == torch.int32

    @property
    def rows(self) -> int:
        """N."""
        return self.values.shape[1 if self.packed else 0]

    @property
    def by_row(self) -> bool:
        """Whether one scale serves a whole row."""
        return self.group_size == self.columns


def prepare_codes(weight: Weight, float8: torch.dtype = torch.float8_e4m3fn) -> Weight:
    """`weight` packed for a chip that reads `float8`; plain ones, and formats not known here, are left as they are."""
    quantization = weight.quantization
    if quantization is None or quantization.format not in FORMATS or weight.values is None:
        return weight
    if weight.matrices > 1 and quantization.format not in EXPERT_FORMATS:
        return weight
    if weight.matrices > 1 and quantization.group_size:
        raise UserError(
            f"Experts in {quantization.format} with a scale for each group of inputs have no kernels on this device.",
            "Leave out --quantization-group-size, or choose a --dtype.",
        )
    values, scale, zero_point = weight.values, quantization.scale, quantization.zero_point
    if quantization.bits == 4:
        values, scale = pack(values + 8 if zero_point is None else values), _turned(scale)
        zero_point = None if zero_point is None else _turned(zero_point)
    elif values.dtype == torch.float8_e4m3fn and float8 != values.dtype:
        values, scale = without_negative_zero(values), scale * 2
    group = quantization.group_size or weight.shape[1]
    return weight.with_prepared(Codes(values, scale, zero_point, group, weight.shape[1]))


def without_negative_zero(codes: torch.Tensor) -> torch.Tensor:
    """Codes of e4m3fn as e4m3fnuz, each half of what it was: the exponent's bias is larger by one there.

    What was -0 would be no number there, so it becomes 0; what was no number stays none.
    """
    assert codes.dtype == torch.float8_e4m3fn, "codes of another dialect"
    bits = codes.view(torch.uint8)
    numbers = torch.where(bits == NEGATIVE_ZERO, 0, bits)
    return torch.where(codes.isnan(), NEGATIVE_ZERO, numbers).to(torch.uint8).view(torch.float8_e4m3fnuz)


def _turned(matrix: torch.Tensor) -> torch.Tensor:
    """Its transpose, in memory of its own; `contiguous` is refused for a device that torch was not built for."""
    return matrix.t().clone(memory_format=torch.contiguous_format)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0 to 15 [N, K] as words [K / 128, N, 16] int32; see programs/nibbles.py. Inputs behind K are 0."""
    rows, columns = codes.shape
    chunks = functional.pad(codes.to(torch.uint8), (0, -columns % CHUNK)).view(rows, -1, CHUNK // PLANE, PLANE // 2, 2)
    words = torch.zeros(chunks.shape[1], rows, PLANE // 2, dtype=torch.int32, device=codes.device)
    for pair in range(CHUNK // PLANE):
        for half in range(2):  # in turn, so that little memory is taken
            words |= chunks.select(2, pair).select(-1, half).transpose(0, 1).int() << (4 * pair + 16 * half)
    return words


@dataclass(frozen=True, slots=True)
class CodedLinear:
    """Products with prepared codes on one chip."""

    chip: Chip
    counters: Counters = field(default_factory=Counters)

    def linear(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, K] -> [T, N]."""
        x = unit_stride(x)
        if self.rounds(weight, x.shape[0], x.dtype):
            return self.multiply(round_tokens(self.chip, x, weight.values.dtype), weight, bias)
        if x.shape[0] <= (self.chip.tuning.codes_packed_tokens if weight.packed else THIN):
            return self._thin(x, weight, bias)
        return functional.linear(x, self.dequantize(weight, x.dtype), bias)

    def rounds(self, weight: Codes, tokens: int, dtype: torch.dtype) -> bool:
        """Whether so many tokens' inputs of a type are rounded to the weight's; torch's library is particular."""
        if weight.packed or not weight.by_row or tokens < 2:
            return False
        aligned = weight.values.shape[0] % ALIGNED == 0 and weight.columns % ALIGNED == 0
        library = aligned and (weight.values.dtype == torch.int8 or dtype == torch.bfloat16)
        return tokens <= THIN or library or not self.chip.library_codes

    def multiply(self, x: Rounded, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        """Both sides in 8 bits: one scale a token, one a row. x [T, K] -> [T, N]."""
        tokens = x.codes.shape[0]
        if tokens <= THIN:
            shape = code_shape(self.chip, tokens, weight.values.shape[0], weight.columns)
            return self._multiply_rounded(x, weight, bias, shape)
        if self.chip.library_codes:
            return self._library(x, weight, bias)
        tile = self.chip.tuning.codes_many
        return self._multiply_rounded(x, weight, bias, ThinShape(tile.rows, MANY_TOKENS, tile.inputs, 1, tile.launch()))

    def dequantize(self, weight: Codes, dtype: torch.dtype) -> torch.Tensor:
        """The matrix [N, K] in `dtype`."""
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

    def _thin(self, x: torch.Tensor, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        tokens, rows = x.shape[0], weight.values.shape[0]
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
            ZEROS=weight.zero_point is not None, BIAS=bias is not None, PAIRS=self.chip.pairs and x.dtype.itemsize == 2,
            **shape.launch, **self.chip.order,
        )  # fmt: skip
        return out

    def _multiply_rounded(self, x: Rounded, weight: Codes, bias: torch.Tensor | None, shape: ThinShape) -> torch.Tensor:
        """A program for each tile of rows, part of the inputs and block of tokens."""
        tokens, rows = x.codes.shape[0], weight.values.shape[0]
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.codes.device)
        multiply_rounded[(shape.tiles(rows), shape.split, -(-tokens // shape.tokens))](
            x.codes, x.scales, weight.values, weight.scale, bias, out, partial_sums(shape, rows, out.device),
            self.counters.on(out.device), tokens, N=rows, K=weight.columns, BIAS=bias is not None, **shape.launch,
            **self.chip.order,
        )  # fmt: skip
        return out

    def _library(self, x: Rounded, weight: Codes, bias: torch.Tensor | None) -> torch.Tensor:
        if weight.values.dtype != torch.int8:
            columns = weight.scale.float().view(1, -1)
            return torch._scaled_mm(
                x.codes, weight.values.t(), x.scales, columns, bias=bias, out_dtype=x.dtype, use_fast_accum=True
            )
        sums = torch._int_mm(x.codes, weight.values.t())
        out = torch.empty(sums.shape, dtype=x.dtype, device=sums.device)
        tokens, rows = sums.shape
        scale_sums[(tokens, -(-rows // BLOCK))](
            sums, x.scales, weight.scale, bias, out, rows, BIAS=bias is not None, BLOCK=BLOCK, **self.chip.order
        )
        return out


def _columns(tokens: int) -> int:
    return 1 if tokens == 1 else max(16, 1 << (tokens - 1).bit_length())
