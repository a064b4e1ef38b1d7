"""GGUF's K-quants as canonical weights: super-blocks of 256 values whose groups have small integer factors.

A group's scale is its factor times the super-block's. Layouts: ggml-quants.h of llama.cpp. Each function takes blocks
[B, bytes] uint8 and returns codes [B, 256], scales [B, groups] float32, and what is subtracted [B, groups] or None.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def _q2_k(blocks: torch.Tensor) -> Parts:
    """[B, 84]: 16 bytes of a factor and a minimum each, 64 bytes of 2-bit codes, scale and minimum (f16)."""
    factors = blocks[:, :16]
    codes = _shifted(blocks[:, 16:80], 32, (0, 2, 4, 6), 3)
    return codes, half(blocks, 80) * (factors & 15), half(blocks, 82) * (factors >> 4)


def _q3_k(blocks: torch.Tensor) -> Parts:
    """[B, 110]: 32 bytes of high bits, 64 bytes of low ones, 12 bytes of 6-bit factors, scale (f16); -4 to 3."""
    packed = blocks[:, 96:108]
    low = torch.cat([packed[:, :8] & 15, packed[:, :8] >> 4], dim=1)
    high = torch.cat([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], dim=1)
    factors = (low | high << 4).to(torch.int8) - 32
    codes = _shifted(blocks[:, 32:96], 32, (0, 2, 4, 6), 3) | _shifted(blocks[:, :32], 32, range(8), 1) << 2
    return codes.to(torch.int8) - 4, half(blocks, 108) * factors, None


def _q4_k(blocks: torch.Tensor) -> Parts:
    """[B, 144]: scale and minimum (f16), 12 bytes of 6-bit factors of both, 128 bytes of 4-bit codes."""
    factors, minima = _six_bits(blocks[:, 4:16])
    return _shifted(blocks[:, 16:], 32, (0, 4), 15), half(blocks, 0) * factors, half(blocks, 2) * minima


def _q5_k(blocks: torch.Tensor) -> Parts:
    """[B, 176]: as Q4_K, with 32 bytes of high bits before the codes."""
    factors, minima = _six_bits(blocks[:, 4:16])
    codes = _shifted(blocks[:, 48:], 32, (0, 4), 15) | _shifted(blocks[:, 16:48], 32, range(8), 1) << 4
    return codes, half(blocks, 0) * factors, half(blocks, 2) * minima


def _q6_k(blocks: torch.Tensor) -> Parts:
    """[B, 210]: 128 bytes of low nibbles, 64 bytes of high bits, 16 factors (int8), scale (f16); -32 to 31."""
    codes = _shifted(blocks[:, :128], 64, (0, 4), 15) | _shifted(blocks[:, 128:192], 32, (0, 2, 4, 6), 3) << 4
    return codes.to(torch.int8) - 32, half(blocks, 208) * blocks[:, 192:208].view(torch.int8), None


def _shifted(packed: torch.Tensor, run: int, shifts: range | tuple[int, ...], mask: int) -> torch.Tensor:
    """[B, bytes] -> [B, 256]: runs of bytes, each run's bits at one shift after those at another."""
    runs = packed.reshape(len(packed), -1, 1, run)
    return torch.cat([runs >> shift & mask for shift in shifts], dim=2).reshape(len(packed), -1)


def _six_bits(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, 12] -> 8 factors of the scale and 8 of the minimum, 6 bits each."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    factors = torch.cat([first & 63, (rest & 15) | (first >> 2 & 48)], dim=1)
    return factors, torch.cat([second & 63, rest >> 4 | (second >> 2 & 48)], dim=1)


def half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The float16 at byte `start` of each block -> [B, 1] float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


SUPER_BLOCKS: dict[str, tuple[int, Callable[[torch.Tensor], Parts]]] = {
    "Q2_K": (16, _q2_k),
    "Q3_K": (16, _q3_k),
    "Q4_K": (32, _q4_k),
    "Q5_K": (32, _q5_k),
    "Q6_K": (16, _q6_k),
}
"""By type: values of a group, and how to unpack."""
