"""GGUF's plain formats as canonical weights, for platforms that multiply them as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from anychip.weights.weight import Quantization, Weight

FORMATS = {"Q4_0": "int4", "Q4_1": "int4", "Q8_0": "int8"}
"""Types that are kept, and what a platform calls them."""
GROUP = 32


def is_kept(type_name: str, shape: tuple[int, ...], formats: Collection[str]) -> bool:
    """Whether a tensor stays quantized on a platform that has `formats`."""
    return FORMATS.get(type_name) in formats and len(shape) == 2


def quantized(raw: torch.Tensor, type_name: str, block_bytes: int, shape: tuple[int, ...]) -> Weight:
    """The tensor [N, K] whose blocks lie end to end in `raw` [bytes] uint8, in groups of 32 inputs."""
    rows, columns = shape
    codes, scale, zero_point = _UNPACK[type_name](raw.view(-1, block_bytes))
    groups = (rows, columns // GROUP)
    quantization = Quantization(
        format=FORMATS[type_name],
        bits=8 if type_name == "Q8_0" else 4,
        group_size=GROUP,
        scale=scale.view(groups),
        zero_point=None if zero_point is None else zero_point.view(groups),
    )
    return Weight(codes.view(rows, columns), (rows, columns), quantization=quantization)


_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def _q4_0(blocks: torch.Tensor) -> _Parts:
    """[N, 18]: scale (f16), 32 nibbles, 8 means zero."""
    return _nibbles(blocks[:, 2:]).view(torch.int8).sub_(8), _half(blocks, 0), None


def _q4_1(blocks: torch.Tensor) -> _Parts:
    """[N, 20]: scale and minimum (f16), 32 nibbles."""
    codes, scale, minimum = _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)
    constant = scale == 0
    if constant.any():
        # All values are the minimum: one step of that size from zero.
        codes[constant] = 1
        scale = torch.where(constant, minimum, scale)
        minimum = torch.where(constant, 0.0, minimum)
    zero_point = torch.where(scale == 0, 0.0, -minimum.float() / scale.float())
    return codes, scale, zero_point


def _q8_0(blocks: torch.Tensor) -> _Parts:
    """[N, 34]: scale (f16), 32 signed bytes."""
    return blocks[:, 2:].contiguous().view(torch.int8), _half(blocks, 0), None


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[N, 16] uint8 -> [N, 32] uint8: the low halves of all bytes, then the high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=1)


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The float16 at byte `start` of each block -> [N]."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).squeeze(1)


_UNPACK: dict[str, Callable[[torch.Tensor], _Parts]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}
