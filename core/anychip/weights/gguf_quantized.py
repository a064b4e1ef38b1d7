"""GGUF's formats as canonical weights, for platforms that multiply them as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from anychip.weights.gguf_super_blocks import SUPER_BLOCKS, Parts, half
from anychip.weights.weight import Quantization, Weight

FORMATS = {
    "Q4_0": "int4",
    "Q4_1": "int4",
    "Q5_0": "int8",
    "Q5_1": "kquant",
    "Q8_0": "int8",
    "Q2_K": "kquant",
    "Q3_K": "kquant",
    "Q4_K": "int4",
    "Q5_K": "kquant",
    "Q6_K": "kquant",
}
"""Types that are kept, and what a platform calls them."""
FOUR_BITS = ("Q4_0", "Q4_1", "Q2_K", "Q3_K", "Q4_K")
"""Types whose codes fit 4 bits; those of the others take 8."""
GROUP = 32
"""Values of a block of the plain types."""


def is_kept(type_name: str, shape: tuple[int, ...], formats: Collection[str]) -> bool:
    """Whether a tensor stays quantized on a platform that has `formats`."""
    return FORMATS.get(type_name) in formats and len(shape) == 2


def quantized(raw: torch.Tensor, type_name: str, block_bytes: int, shape: tuple[int, ...]) -> Weight:
    """The tensor [N, K] whose blocks lie end to end in `raw` [bytes] uint8."""
    rows, columns = shape
    group, unpack = _UNPACK[type_name]
    codes, scale, subtracted = unpack(raw.view(-1, block_bytes))
    zero_point = None
    if subtracted is not None:
        codes, scale, zero_point = _with_zero_points(codes.view(-1, group), scale.flatten(), subtracted.flatten())
        zero_point = zero_point.view(rows, columns // group)
    if type_name not in SUPER_BLOCKS:
        scale = scale.half()  # as it was stored
    quantization = Quantization(
        format=FORMATS[type_name],
        bits=4 if type_name in FOUR_BITS else 8,
        group_size=group,
        scale=scale.reshape(rows, columns // group),
        zero_point=zero_point,
    )
    return Weight(codes.view(rows, columns), (rows, columns), quantization=quantization)


def _with_zero_points(
    codes: torch.Tensor, scale: torch.Tensor, subtracted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """code * scale - subtracted, by group, as (code - zero point) * scale."""
    constant = scale == 0
    if constant.any():
        # All values are the minimum: one step of that size from zero.
        codes[constant] = 1
        scale = torch.where(constant, -subtracted, scale)
        subtracted = torch.where(constant, 0.0, subtracted)
    return codes, scale, torch.where(scale == 0, 0.0, subtracted / scale)


def _q4_0(blocks: torch.Tensor) -> Parts:
    """[B, 18]: scale (f16), 32 nibbles, 8 means zero."""
    return _nibbles(blocks[:, 2:]).view(torch.int8).sub_(8), half(blocks, 0), None


def _q4_1(blocks: torch.Tensor) -> Parts:
    """[B, 20]: scale and minimum (f16), 32 nibbles."""
    return _nibbles(blocks[:, 4:]), half(blocks, 0), -half(blocks, 2)


def _q5_0(blocks: torch.Tensor) -> Parts:
    """[B, 22]: scale (f16), 32 high bits, 32 nibbles, 16 means zero."""
    codes = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4
    return codes.view(torch.int8).sub_(16), half(blocks, 0), None


def _q5_1(blocks: torch.Tensor) -> Parts:
    """[B, 24]: scale and minimum (f16), 32 high bits, 32 nibbles."""
    return _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4, half(blocks, 0), -half(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> Parts:
    """[B, 34]: scale (f16), 32 signed bytes."""
    return blocks[:, 2:].contiguous().view(torch.int8), half(blocks, 0), None


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[B, 16] uint8 -> [B, 32] uint8: the low halves of all bytes, then the high ones."""
    half_size = packed.shape[1]
    codes = packed.new_empty(len(packed), 2 * half_size)
    torch.bitwise_and(packed, 15, out=codes[:, :half_size])
    torch.bitwise_right_shift(packed, 4, out=codes[:, half_size:])
    return codes


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """[B, 4] uint8 -> [B, 32] uint8, 0 or 1, lowest bit first."""
    places = torch.arange(8, dtype=torch.uint8)
    return (packed.unsqueeze(-1) >> places & 1).flatten(1)


_UNPACK: dict[str, tuple[int, Callable[[torch.Tensor], Parts]]] = {
    "Q4_0": (GROUP, _q4_0),
    "Q4_1": (GROUP, _q4_1),
    "Q5_0": (GROUP, _q5_0),
    "Q5_1": (GROUP, _q5_1),
    "Q8_0": (GROUP, _q8_0),
    **SUPER_BLOCKS,
}
