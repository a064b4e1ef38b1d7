"""Steps whose last rows are whole prompts: those go to a library, all other rows to Triton's attention.

rows   one token each | prompts that go on | whole prompts
       Triton's pieces of contexts, tiles  | the library, over keys of the step
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch

from anychip.engine.batch import Int32
from anychip.ops.attention import AttentionInputs
from anychip.plugin.contract import KVSpec
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.cache import PagedCache
from anychip.triton.attention.plan import PagedPlan, key_slots
from anychip.triton.attention.rotary import Heads
from anychip_cuda.libraries import Keys, Library, Prompts
from anychip_cuda.recorded import RecordedInputs

ROOM = 256 << 20
"""Bytes of keys and values that are read out of a cache at once, at most: the worst step that is tried reads fewer."""


@dataclass(slots=True)
class Newest:
    """Keys and values of the layer that was written last, until they are attended to."""

    cache: PagedCache | None = None
    beside: tuple[torch.Tensor, torch.Tensor] | None = None

    def put(self, cache: PagedCache, k: torch.Tensor, v: torch.Tensor) -> None:
        """Keep them."""
        self.cache, self.beside = cache, (k, v)

    def take(self, cache: PagedCache) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Those of one layer, which are then kept no longer; None if they are another's."""
        found = self.beside if self.cache is cache else None
        self.cache = self.beside = None
        return found


@dataclass(frozen=True, slots=True)
class PromptPlan(PagedPlan):
    """A plan of a step whose last rows are a library's."""

    prompts: Prompts = field(kw_only=True)
    others: PagedPlan | None = field(kw_only=True)
    """Of the rows before them; None where there are none."""
    keys: torch.Tensor = field(kw_only=True)
    """[K] int64 slots of all that is in the caches of those rows."""
    newest: Newest = field(kw_only=True, default_factory=Newest)


@dataclass(frozen=True, slots=True)
class CachedKeys(Keys):
    """Those in a layer's cache."""

    heads: Heads
    cache: PagedCache
    slots: torch.Tensor
    """[K]."""
    dtype: torch.dtype
    beside: tuple[torch.Tensor, torch.Tensor] | None

    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Keys`."""
        return self.heads.read(self.cache, self.slots[first:last], room, self.dtype)


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """The ops of attention with a library for long prompts."""

    attention: Attention
    heads: Heads
    library: Library

    def plan_attention(self, inputs: AttentionInputs, spec: KVSpec, block_size: int) -> PagedPlan:
        """See anychip.ops.attention.plan_attention."""
        plan = self.attention.plan_attention(inputs, spec, block_size)
        if isinstance(inputs, RecordedInputs):
            return self._recorded(inputs, spec, plan)
        row = max(first_taken(inputs.host_query_start, inputs.host_seq_lens, self.library), inputs.num_single)
        lengths = inputs.host_seq_lens[row:]
        if (
            not len(lengths)
            or (plan.window and int(lengths.max()) > plan.window)
            or key_bytes(int(lengths.sum()), spec) > ROOM
        ):
            return plan
        prompts = _prompts(inputs, row)
        count, table = prompts.key_start[-1], inputs.block_table[row:]
        keys = key_slots(prompts.keys_on_device, table, count, block_size, self.attention.chip)
        return _with(plan, prompts, self._others(inputs, spec, plan, row) if row else None, keys)

    def _recorded(self, inputs: RecordedInputs, spec: KVSpec, plan: PagedPlan) -> PagedPlan:
        """The same where only the device knows which rows there are."""
        if inputs.alone:
            tokens = (0, len(plan.slots))
            start = inputs.query_start
            return _with(plan, Prompts(0, 0, tokens, tokens, start, start, True, True), None, plan.slots)
        prompts, before = inputs.cut(self.library)
        others = self.attention.plan_attention(before, spec, plan.block_size)
        count, chip = prompts.key_start[-1], self.attention.chip
        keys = key_slots(prompts.keys_on_device, inputs.block_table, count, plan.block_size, chip)
        return _with(plan, prompts, others, keys)

    def _others(self, inputs: AttentionInputs, spec: KVSpec, plan: PagedPlan, row: int) -> PagedPlan:
        """A plan of the first rows alone."""
        if row == inputs.num_single:
            return replace(plan, queries=None)
        start, lengths = inputs.host_query_start[: row + 1], inputs.host_seq_lens[:row]
        first = replace(
            inputs,
            positions=inputs.positions[: start[-1]],
            query_start=inputs.query_start[: row + 1],
            seq_lens=inputs.seq_lens[:row],
            block_table=inputs.block_table[:row],
            host_query_start=start,
            host_seq_lens=lengths,
            max_query=int(np.diff(start).max()),
            max_seq=int(lengths.max()),
        )
        return self.attention.plan_attention(first, spec, plan.block_size)

    def kv_write(self, k: torch.Tensor, v: torch.Tensor, cache: PagedCache, plan: PagedPlan) -> None:
        """See anychip.ops.attention.kv_write."""
        self.heads.kv_write(k, v, cache, plan)
        newest = self._newest(cache, plan)
        if newest is not None:
            newest.put(cache, k, v)

    def qk_norm_rope_kv_write(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        cache: PagedCache,
        plan: PagedPlan,
    ) -> torch.Tensor:
        """See anychip.ops.composite.qk_norm_rope_kv_write."""
        newest = self._newest(cache, plan)
        beside = None if newest is None else torch.empty(k.shape, dtype=k.dtype, device=k.device)
        q = self.heads.prepare(q, k, v, q_norm, k_norm, eps, positions, cos_sin, cache, plan, beside)
        if newest is not None and beside is not None:
            newest.put(cache, beside, v)
        return q

    def _newest(self, cache: PagedCache, plan: PagedPlan) -> Newest | None:
        """Where to keep a layer's keys and values, if the library takes them; those of a cache in codes are rounded."""
        if not isinstance(plan, PromptPlan):
            return None
        alike = plan.prompts.fresh and plan.prompts.even
        return plan.newest if alike and self.library.keeps and cache.whole else None

    def paged_attention(
        self,
        q: torch.Tensor,
        cache: PagedCache,
        plan: PagedPlan,
        scale: float,
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See anychip.ops.attention.paged_attention."""
        if not isinstance(plan, PromptPlan):
            return self.attention.paged_attention(q, cache, plan, scale, softcap, sinks)
        assert not softcap and sinks is None, "the library was asked whether it serves the model"
        begin, found = plan.prompts.begin, plan.newest.take(cache)
        beside = None if found is None else (found[0][begin:], found[1][begin:])
        keys = CachedKeys(self.heads, cache, plan.keys, q.dtype, beside)
        if plan.others is None:
            return self.library.attend(q, keys, plan.prompts, scale)
        out = self.attention.paged_attention(q, cache, plan.others, scale)
        self.library.attend(q[begin:], keys, plan.prompts, scale, out[begin:])
        return out


def _with(plan: PagedPlan, prompts: Prompts, others: PagedPlan | None, keys: torch.Tensor) -> PromptPlan:
    known = {each.name: getattr(plan, each.name) for each in fields(PagedPlan)}
    return PromptPlan(**known, prompts=prompts, others=others, keys=keys)


def _prompts(inputs: AttentionInputs, row: int) -> Prompts:
    begin, lengths = int(inputs.host_query_start[row]), inputs.host_seq_lens[row:]
    start = tuple((inputs.host_query_start[row:] - begin).tolist())
    key_start = (0, *np.cumsum(lengths).tolist())
    on_device = inputs.query_start[row:] - begin if begin else inputs.query_start
    even = len({*zip(np.diff(start), lengths, strict=True)}) == 1
    if start == key_start:
        return Prompts(row, begin, start, key_start, on_device, on_device, True, even)
    keys_on_device = torch.zeros_like(on_device)
    torch.cumsum(inputs.seq_lens[row:], 0, dtype=torch.int32, out=keys_on_device[1:])
    return Prompts(row, begin, start, key_start, on_device, keys_on_device, False, even)


def first_taken(query_start: Int32, seq_lens: Int32, library: Library) -> int:
    """The row from which on all are worth a library."""
    tokens = np.diff(query_start)
    other = np.flatnonzero((tokens < library.least) | (seq_lens > library.most_keys * tokens))
    return int(other[-1]) + 1 if len(other) else 0


def key_bytes(count: int, spec: KVSpec) -> int:
    """What so many keys and values take outside the cache, as 16-bit numbers."""
    return 2 * count * sum(math.prod(plane.shape) for plane in spec.planes if plane.name in ("k", "v"))
