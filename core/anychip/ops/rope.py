"""Rotary position embedding (Su et al., 2021), halves rotated against each other as in GPT-NeoX."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import TOKEN_COUNTS, accumulation_dtype, normal, strided

MAX_POSITION = 97


def rope(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys to their positions.

    q [T, N, D], k [T, M, D], positions [T] int, cos_sin [P, rot]: row p holds rot/2 cosines, then rot/2 sines, float32.
    Only the first `rot` of the D elements turn. Returns new tensors.
    """
    cos, sin = cos_sin[positions.long()].unsqueeze(1).chunk(2, dim=-1)
    return _rotate(q, cos, sin), _rotate(k, cos, sin)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotary = 2 * cos.shape[-1]
    low, high = x[..., :rotary].to(accumulation_dtype(x.dtype)).chunk(2, dim=-1)
    turned = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1).to(x.dtype)
    return torch.cat([turned, x[..., rotary:]], dim=-1)


def rotation_table(rotary: int, length: int = MAX_POSITION, base: float = 10000.0) -> torch.Tensor:
    """A plain [length, rotary] table for cases and warm-up."""
    frequencies = base ** (-torch.arange(0, rotary, 2) / rotary)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    half = spec.head_dim // 4 * 2
    for rotary in (spec.head_dim, half) if half else (spec.head_dim,):
        table = rotation_table(rotary)
        for tokens in TOKEN_COUNTS:
            q = normal(generator, tokens, spec.num_heads, spec.head_dim, dtype=spec.dtype)
            k = normal(generator, tokens, spec.num_kv_heads, spec.head_dim, dtype=spec.dtype)
            positions = torch.randint(MAX_POSITION, (tokens,), generator=generator, dtype=torch.int32)
            yield Case(f"{tokens} tokens, {rotary} of {spec.head_dim}", (q, k, positions, table))
            yield Case(f"strided, {tokens} tokens, {rotary}", (strided(q), strided(k), positions, table))


ROPE_OPS = (Op("rope", rope, _cases),)
