"""Paged attention: the cache, the plan made once a step, writing, and the float32 definition of reading.

One cache of a layer, in the reference's own layout:

    k [num_blocks, block_size, kv_heads, head_dim]      v likewise
      block 0 is NULL_BLOCK: table padding points at it and padding tokens write to it
      token at position p of a row lies in block block_table[row, p // block_size], entry p % block_size
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from anychip.engine.batch import Int32
from anychip.errors import UserError
from anychip.ops.shapes import accumulation_dtype, dtype_of
from anychip.plugin.contract import KVSpec

MAX_SCORES = 1 << 22
"""Attention scores the reference holds at once."""


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """Where the tokens of a step lie in one KV group: on the device, and on the host so that nobody has to wait for it.

    T tokens in R rows, those with a single token first. A row whose newest token is still on the device has upper
    bounds on the host; the device's `positions` and `seq_lens` are exact.
    """

    positions: torch.Tensor
    """[T] int32."""
    query_start: torch.Tensor
    """[R+1] int32; row r owns tokens query_start[r] to query_start[r+1], and query_start[R] is T."""
    seq_lens: torch.Tensor
    """[R] int32, tokens in the cache after this step's are written."""
    block_table: torch.Tensor
    """[R, B] int32, padded with NULL_BLOCK."""
    host_query_start: Int32
    host_seq_lens: Int32
    num_single: int
    """Leading rows with exactly one token."""
    max_query: int
    max_seq: int

    @classmethod
    def from_host(
        cls,
        positions: Int32,
        query_start: Int32,
        seq_lens: Int32,
        block_table: Int32,
        num_single: int,
        device: torch.device | str,
    ) -> AttentionInputs:
        """Copy a step's arrays to the device."""
        return cls(
            positions=torch.tensor(positions, device=device),
            query_start=torch.tensor(query_start, device=device),
            seq_lens=torch.tensor(seq_lens, device=device),
            block_table=torch.tensor(block_table, device=device),
            host_query_start=query_start.copy(),
            host_seq_lens=seq_lens.copy(),
            num_single=num_single,
            max_query=int(np.diff(query_start).max(initial=0)),
            max_seq=int(seq_lens.max(initial=0)),
        )


@dataclass(frozen=True, slots=True)
class KVCache:
    """One layer's cache in the reference's layout: planes [num_blocks, block_size, heads, dim]."""

    k: torch.Tensor
    v: torch.Tensor
    k_scale: torch.Tensor | None = None
    """[num_blocks, block_size, heads] float32, where keys and values are codes of 8 bits."""
    v_scale: torch.Tensor | None = None

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        """Those that there are."""
        return tuple(plane for plane in (self.k, self.v, self.k_scale, self.v_scale) if plane is not None)


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Index work of one step and KV group, shared by its layers."""

    inputs: AttentionInputs
    block_size: int
    window: int | None
    slots: torch.Tensor
    """[T] int64, block * block_size + entry: where each token's key and value go."""


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> KVCache:
    """Cache of one layer for `num_blocks` blocks, uninitialized: nobody reads an entry that was not written."""
    planes = {plane.name: plane for plane in spec.planes}
    if not set(planes) <= set(KVCache.__slots__) or spec.kind not in ("full", "sliding"):
        raise UserError(f"The reference attention keeps keys and values only, not {', '.join(planes)} ({spec.kind}).")
    made = {
        name: torch.empty(num_blocks, block_size, *plane.shape, dtype=dtype_of(plane.dtype), device=device)
        for name, plane in planes.items()
    }
    return KVCache(made["k"], made["v"], made.get("k_scale"), made.get("v_scale"))


def copy_blocks(cache: KVCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy blocks within one layer's cache. source [C] and target [C] int64 block numbers."""
    for plane in cache.planes:
        plane[target] = plane[source]


def plan_attention(inputs: AttentionInputs, spec: KVSpec, block_size: int) -> AttentionPlan:
    """Do a step's index work for one KV group."""
    tokens = torch.arange(inputs.positions.shape[0], device=inputs.positions.device, dtype=torch.int32)
    rows = torch.bucketize(tokens, inputs.query_start[1:], right=True)
    positions = inputs.positions.long()
    blocks = inputs.block_table[rows, positions // block_size].long()
    return AttentionPlan(inputs, block_size, spec.window, blocks * block_size + positions % block_size)


def kv_write(k: torch.Tensor, v: torch.Tensor, cache: KVCache, plan: AttentionPlan) -> None:
    """Put the step's keys [T, M, D] and values [T, M, Dv] where the plan says."""
    for values, plane, scales in ((k, cache.k, cache.k_scale), (v, cache.v, cache.v_scale)):
        if scales is None:
            plane.flatten(0, 1).index_copy_(0, plan.slots, values.to(plane.dtype))
        else:
            codes, factors = entry_codes(values, plane.dtype)
            scales.flatten(0, 1).index_copy_(0, plan.slots, factors)
            plane.view(torch.uint8).flatten(0, 1).index_copy_(0, plan.slots, codes.view(torch.uint8))


def entry_codes(values: torch.Tensor, code: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys or values [T, M, D] as codes of the same shape, int8 or float8, and a scale [T, M] float32 for each head.

    The largest of a head is the largest code. What is no number makes its head's scale none.
    """
    wide = values.float()
    largest = 127.0 if code == torch.int8 else torch.finfo(code).max
    scale = wide.abs().amax(-1) / largest
    codes = torch.nan_to_num(wide / scale.clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(-1))
    if code == torch.int8:
        codes.round_()
    return codes.clamp_(-largest, largest).to(code), scale


def paged_attention(
    q: torch.Tensor,
    cache: KVCache,
    plan: AttentionPlan,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of every row over its own cache, the step's tokens included.

    q [T, N, D] -> [T, N, Dv] in q's dtype, computed in float32. Causal by `positions`; with a window w, position p sees
    p-w+1 to p. N is a multiple of the M cached heads (grouped queries). `softcap` c > 0 turns a score s into
    c * tanh(s / c) (Gemma 2). `sinks` [N] adds one logit a head to the softmax that carries no value (gpt-oss).
    """
    rows = [attend(*part, cache, plan.window, scale, softcap, sinks) for part in _parts(q, cache, plan)]
    return torch.cat(rows).to(q.dtype) if rows else q.new_zeros(0, q.shape[1], cache.v.shape[-1])


def _parts(
    q: torch.Tensor, cache: KVCache, plan: AttentionPlan
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(queries [G, t, N, D], positions [G, t], blocks [G, b]) in token order, each small enough to hold its scores."""
    inputs, block_size = plan.inputs, plan.block_size
    start, lengths = inputs.host_query_start, inputs.host_seq_lens
    entry = max(q.shape[1], 2 * cache.k.shape[2] * cache.k.shape[3])
    first = 0
    while first < inputs.num_single:
        last = first + max(1, MAX_SCORES // (entry * max(1, inputs.max_seq)))
        last = min(last, inputs.num_single)
        width = -(-int(lengths[first:last].max()) // block_size)
        positions = inputs.positions[first:last].unsqueeze(1)
        yield q[first:last].unsqueeze(1), positions, inputs.block_table[first:last, :width]
        first = last
    for row in range(inputs.num_single, len(lengths)):
        width = -(-int(lengths[row]) // block_size)
        count = max(1, MAX_SCORES // (q.shape[1] * max(1, width * block_size)))
        for begin in range(int(start[row]), int(start[row + 1]), count):
            part = slice(begin, min(begin + count, int(start[row + 1])))
            yield q[part].unsqueeze(0), inputs.positions[part].unsqueeze(0), inputs.block_table[row : row + 1, :width]


def attend(
    q: torch.Tensor,
    positions: torch.Tensor,
    blocks: torch.Tensor,
    cache: KVCache,
    window: int | None,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """q [G, t, N, D] at positions [G, t] against G rows of the cache, in `blocks` [G, b] -> [G*t, N, Dv]."""
    groups, count, heads, dim = q.shape
    wide = accumulation_dtype(q.dtype)
    k = _gathered(cache.k, cache.k_scale, blocks, wide)
    v = _gathered(cache.v, cache.v_scale, blocks, wide)
    visible = _visible(positions, k.shape[1], window)
    # What no query sees may be another request's, or garbage: zero it, because 0 * nan is nan.
    v = v.masked_fill(~visible.any(1)[..., None, None], 0.0)
    q = q.to(wide).view(groups, count, k.shape[2], -1, dim)
    scores = torch.einsum("gtmrd,gsmd->gmrts", q, k) * scale
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    weights = _softmax(scores, sinks)
    return torch.einsum("gmrts,gsmd->gtmrd", weights, v).reshape(groups * count, heads, v.shape[-1])


def _gathered(
    plane: torch.Tensor, scale: torch.Tensor | None, blocks: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Entries of each row's blocks, [G, b * block_size, M, dim] in `dtype`."""
    entries = plane[blocks.long()].flatten(1, 2).to(dtype)
    return entries if scale is None else entries * scale[blocks.long()].flatten(1, 2).unsqueeze(-1)


def _visible(positions: torch.Tensor, length: int, window: int | None) -> torch.Tensor:
    """[G, t, length] whether a query at positions [G, t] sees the key at each position."""
    distance = positions.unsqueeze(-1) - torch.arange(length, device=positions.device, dtype=torch.int32)
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Softmax over the last axis of [G, M, N/M, t, s]; sinks [N] join the denominator only."""
    if sinks is None:
        return scores.softmax(-1)
    shape = (1, scores.shape[1], scores.shape[2], 1, 1)
    sink = sinks.to(scores.dtype).view(shape).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
