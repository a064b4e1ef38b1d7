"""Quantized weights as programs read them: 8 bits as they are, 4 bits packed for a chip's instructions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from anychip.errors import UserError
from anychip.triton.coding import GROUP, Coding
from anychip.weights.weight import Quantization, Weight

CHUNK, PLANE = 128, 32
"""Inputs in 16 words of a row, and in one pair of nibbles of each of these words; see programs/nibbles.py."""
BLOCK_ROWS = 16
"""Rows of a block of fragments, which has 64 inputs; see gluon_programs/fragments.py."""
FORMATS = ("int4", "int8", "fp8")
"""Formats with kernels for linear layers."""
EXPERT_FORMATS = ("int8", "fp8")
"""Formats with kernels for a mixture's experts, which have one scale a row."""
NEGATIVE_ZERO = 0x80
"""The byte that is -0 in e4m3fn and NaN in e4m3fnuz."""
SMALLEST, LARGEST = 2.0**-14, 65504.0
"""Absolute scales that float16 holds at full precision."""
FARTHEST = 64.0
"""Absolute zero points up to which float16 is exact to 1/32 of a code."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A prepared weight of N rows (outputs) and K columns (inputs): weight = (code - zero point) * scale of its group.

    8 bits: codes [N, K]. 4 bits: eight codes in an int32, as words [K / 128, N, 16] or fragments [K / 64, N / 16, 128].
    """

    values: torch.Tensor
    scale: torch.Tensor
    """Of G groups a row: 8 bits [N, G]; words [G, N]; fragments int32 [B, N / 16, 8, ..], each of two float16."""
    zero_point: torch.Tensor | None
    """Arranged like `scale`; None: 0 for codes of 8 bits, 8 for those of 4."""
    group_size: int
    """Neighbouring inputs of a row that share a scale."""
    columns: int
    """K."""
    activation: str = "token"
    """As in `Quantization`."""

    @property
    def packed(self) -> bool:
        """Whether a word holds eight codes."""
        return self.values.dtype == torch.int32

    @property
    def fragments(self) -> bool:
        """Whether they lie in memory as NVIDIA's matrix instructions take them."""
        return self.packed and self.scale.dtype == torch.int32

    @property
    def rows(self) -> int:
        """N."""
        if self.fragments:
            return self.values.shape[1] * BLOCK_ROWS
        return self.values.shape[1 if self.packed else 0]

    @property
    def coding(self) -> Coding:
        """What inputs become where both sides are codes."""
        group, terms = GROUP if self.activation == "group" else 0, 2 if self.activation == "none" else 1
        return Coding(self.values.dtype, group, terms)

    @property
    def by_row(self) -> bool:
        """Whether one scale serves a whole row."""
        return self.group_size == self.columns


def prepare_codes(weight: Weight, float8: torch.dtype = torch.float8_e4m3fn, fragments: bool = False) -> Weight:
    """`weight` with `Codes` beside it, for a chip whose 8-bit floats are `float8`; 4 bits as `fragments` if they suit.

    A weight that is not quantized, or in a format without kernels here, is returned as it is. Raises `UserError` for
    experts whose rows have more than one scale.
    """
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
    group = quantization.group_size or weight.shape[1]
    if quantization.bits == 4:
        codes = values + 8 if zero_point is None else values
        if fragments and suit_fragments(weight.shape, group, quantization):
            values, scale = pack_fragments(codes), pack_pairs(scale, group)
            zero_point = None if zero_point is None else pack_pairs(zero_point, group)
        else:
            values, scale = pack(codes), _turned(scale)
            zero_point = None if zero_point is None else _turned(zero_point)
    elif values.dtype == torch.float8_e4m3fn and float8 != values.dtype:
        values, scale = without_negative_zero(values), scale * 2
    return weight.with_prepared(Codes(values, scale, zero_point, group, weight.shape[1], quantization.activation))


def suit_fragments(shape: tuple[int, int], group: int, quantization: Quantization) -> bool:
    """Whether a matrix [N, K] can be packed in fragments without losing anything.

    Blocks have to fill it, groups must not end within a block, and float16 has to hold scales and zero points.
    """
    if shape[0] % BLOCK_ROWS or shape[1] % CHUNK or (group not in (32, 64) and group % CHUNK):
        return False
    sizes, zero_point = quantization.scale.abs(), quantization.zero_point
    if quantization.scale.dtype == torch.float16 or sizes.is_meta:
        return True
    held = ((sizes == 0) | (sizes >= SMALLEST)) & (sizes <= LARGEST)
    near = zero_point is None or bool((zero_point.abs() <= FARTHEST).all())
    return near and bool(held.all())


def without_negative_zero(codes: torch.Tensor) -> torch.Tensor:
    """Bytes of e4m3fn as e4m3fnuz, where they mean half as much: the exponent's bias is larger by one there.

    The byte of -0 means NaN there, so -0 becomes 0; NaN stays NaN.
    """
    assert codes.dtype == torch.float8_e4m3fn, "codes of another dialect"
    bits = codes.view(torch.uint8)
    numbers = torch.where(bits == NEGATIVE_ZERO, 0, bits)
    return torch.where(codes.isnan(), NEGATIVE_ZERO, numbers).to(torch.uint8).view(torch.float8_e4m3fnuz)


def _turned(matrix: torch.Tensor) -> torch.Tensor:
    """A contiguous transpose. `contiguous` itself is refused on a device that this build of torch is not for."""
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


def pack_fragments(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0 to 15 [N, K] as words [K / 64, N / 16, 128] int32; see gluon_programs/fragments.py."""
    rows, columns = codes.shape
    split = codes.to(torch.uint8).view(rows // 16, 2, 8, columns // 64, 4, 2, 4, 2)
    words = torch.zeros(columns // 64, rows // 16, 8, 4, 4, dtype=torch.int32, device=codes.device)
    for half in range(2):  # in turn, so that little memory is taken
        for lower in range(2):
            for later in range(2):
                part = split[:, lower, :, :, :, later, :, half]  # [blocks of rows, g, blocks of inputs, w, t]
                words |= part.permute(2, 0, 1, 4, 3).int() << (16 * half + 4 * lower + 8 * later)
    return words.view(columns // 64, rows // 16, 128)


def pack_pairs(factors: torch.Tensor, group: int) -> torch.Tensor:
    """Scales or zero points [N, G] float16 as [blocks of inputs, N / 16, 8, groups of a block] int32."""
    rows, groups = factors.shape
    count = 2 if group == 32 else 1
    split = factors.half().view(rows // 16, 2, 8, groups // count, count).permute(3, 0, 2, 4, 1)
    return split.clone(memory_format=torch.contiguous_format).view(torch.int32).squeeze(-1)
