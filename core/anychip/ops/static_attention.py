"""Attention whose shapes follow from its arguments' shapes alone, for devices that compile a program for each shape.

The cache is the reference's. It is written by its own tensors and not through views of them, so that a compiler sees
that it may do so in place. Every token reads all blocks of its row's table, which is what the longest sequence needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from anychip.ops.attention import AttentionInputs, KVCache, attend, copy_blocks, entry_codes, new_cache
from anychip.ops.op import Kernel
from anychip.ops.ragged import Ragged
from anychip.ops.shapes import accumulation_dtype
from anychip.plugin.contract import KVSpec

MAX_ELEMENTS = 1 << 26
"""Keys and values, or scores, that are held at once."""


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """Index work of one step and KV group, shared by its layers."""

    inputs: AttentionInputs
    block_size: int
    window: int | None
    rows: torch.Tensor
    """[T] int64, the row of each token."""
    blocks: torch.Tensor
    """[T] int64, the block in which each token's key and value go."""
    entries: torch.Tensor
    """[T] int64, their place in it."""


def static_plan(inputs: AttentionInputs, spec: KVSpec, block_size: int) -> StaticPlan:
    """See anychip.ops.attention.plan_attention."""
    positions = inputs.positions.long()
    rows = _rows(inputs.query_start, len(positions))
    blocks = inputs.block_table[rows, positions // block_size].long()
    return StaticPlan(inputs, block_size, spec.window, rows, blocks, positions % block_size)


def static_kv_write(k: torch.Tensor, v: torch.Tensor, cache: KVCache, plan: StaticPlan) -> None:
    """See anychip.ops.attention.kv_write."""
    at = plan.blocks, plan.entries
    for values, plane, scales in ((k, cache.k, cache.k_scale), (v, cache.v, cache.v_scale)):
        if scales is None:
            plane.index_put_(at, values.to(plane.dtype))
        else:
            codes, factors = entry_codes(values, plane.dtype)
            scales.index_put_(at, factors)
            plane.index_put_(at, codes)


def static_paged_attention(
    q: torch.Tensor,
    cache: KVCache,
    plan: StaticPlan,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """See anychip.ops.attention.paged_attention."""
    entry = max(q.shape[1], 2 * cache.k.shape[2] * cache.k.shape[3])
    parts = [
        attend(
            q[part].unsqueeze(1),
            plan.inputs.positions[part].unsqueeze(1),
            plan.inputs.block_table[plan.rows[part]],
            cache,
            plan.window,
            scale,
            softcap,
            sinks,
        )
        for part in _parts(len(q), entry * plan.inputs.block_table.shape[1] * plan.block_size)
    ]
    return torch.cat(parts).to(q.dtype) if parts else q.new_zeros(0, q.shape[1], cache.v.shape[-1])


def static_ragged_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Ragged, scale: float
) -> torch.Tensor:
    """See anychip.ops.ragged.ragged_attention. Every query is held against every key: T x T scores."""
    row = _rows(rows.start, len(q))
    finite = v.isfinite().all(-1).all(-1)
    same = row.unsqueeze(1) == row
    # What is no number in one row shows there, and must not reach another by being multiplied by 0.
    whole = (finite | ~same).all(1)
    values = torch.where(finite[:, None, None], v, 0).to(accumulation_dtype(v.dtype))
    parts = [_attend_all(q[part], k, values, same[part], scale) for part in _parts(len(q), q.shape[1] * len(q))]
    attended = torch.cat(parts) if parts else q.new_zeros(0, q.shape[1], v.shape[-1])
    return attended.masked_fill(~whole[:, None, None], float("nan")).to(q.dtype)


def _attend_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, scale: float) -> torch.Tensor:
    """q [t, N, D] against k and v [T, M, D] where `seen` [t, T] -> [t, N, D], wide."""
    wide = v.dtype
    queries = q.to(wide).reshape(len(q), k.shape[1], -1, q.shape[-1])
    scores = torch.einsum("tmrd,smd->mrts", queries, k.to(wide)) * scale
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("mrts,smd->tmrd", weights, v).reshape(len(q), q.shape[1], -1)


def _rows(start: torch.Tensor, tokens: int) -> torch.Tensor:
    """[T] int64, the row of each token."""
    index = torch.arange(tokens, device=start.device, dtype=start.dtype)
    return (index.unsqueeze(1) >= start[1:-1]).sum(1)


def _parts(count: int, elements: int) -> Iterator[slice]:
    """Parts of `count` queries, each of which needs `elements`."""
    size = max(1, MAX_ELEMENTS // max(1, elements))
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


STATIC_ATTENTION: Mapping[str, Kernel] = MappingProxyType(
    {
        "new_cache": Kernel(new_cache),
        "copy_blocks": Kernel(copy_blocks),
        "plan_attention": Kernel(static_plan),
        "kv_write": Kernel(static_kv_write),
        "paged_attention": Kernel(static_paged_attention),
        "ragged_attention": Kernel(static_ragged_attention),
    }
)
"""Kernels by op name."""
