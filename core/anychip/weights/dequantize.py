"""Blocks of a GGUF tensor as floating point.

Three common types are unpacked with torch, several times faster than with numpy; the others go through the `gguf`
package, against which these three are tested.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_HALF_BLOCK = 16
NATIVE_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantize(raw: torch.Tensor, type_name: str, block_bytes: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Values of a tensor of this ggml type.

    `raw` [bytes] uint8 holds its blocks end to end. Returns [*shape] float32, or the stored type for F16 and BF16.
    """
    if type_name in NATIVE_DTYPES:
        return raw.view(NATIVE_DTYPES[type_name]).reshape(shape)
    unpack = _UNPACK.get(type_name)
    if unpack is None:
        return _through_package(raw, type_name).reshape(shape)
    return unpack(raw.view(-1, block_bytes)).reshape(shape)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    """[N, 18]: scale (f16), 32 nibbles -> [N, 32]."""
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    """[N, 20]: scale and minimum (f16), 32 nibbles -> [N, 32]."""
    return _nibbles(blocks[:, 4:]).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    """[N, 34]: scale (f16), 32 signed bytes -> [N, 32]."""
    return blocks[:, 2:].view(torch.int8).to(torch.float32).mul_(_half(blocks, 0))


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[N, 16] uint8 -> [N, 32] float32: the low halves of all bytes, then the high ones."""
    values = torch.empty(packed.shape[0], 2 * _HALF_BLOCK, dtype=torch.float32)
    values[:, :_HALF_BLOCK] = packed & 0x0F
    values[:, _HALF_BLOCK:] = packed >> 4
    return values


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The float16 at byte `start` of each block -> [N, 1] float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).to(torch.float32)


def _through_package(raw: torch.Tensor, type_name: str) -> torch.Tensor:
    from gguf import GGMLQuantizationType, quants

    return torch.from_numpy(quants.dequantize(raw.numpy(), GGMLQuantizationType[type_name]))


_UNPACK: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}
