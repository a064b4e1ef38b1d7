"""Attention of steps that end with long prompts: a library attends those, Triton's attention all rows before them.

rows   one token each | prompts with much in the cache, or short | long prompts
       Triton: contexts in pieces, tiles of new tokens           | the library, over keys of all their tokens
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
"""Most bytes of keys and values that are read out of a cache at once: less than the measured worst step takes."""


@dataclass(slots=True)
class LastComputed:
    """Keys and values of the layer that was written last, kept until it is attended."""

    cache: PagedCache | None = None
    """That layer's."""
    pair: tuple[torch.Tensor, torch.Tensor] | None = None
    """[T, M, D] each, of all tokens of the step."""

    def put(self, cache: PagedCache, k: torch.Tensor, v: torch.Tensor) -> None:
        """Keep a layer's keys (rotated) and values; those of the layer before are dropped."""
        self.cache, self.pair = cache, (k, v)

    def take(self, cache: PagedCache) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Hand out a layer's pair and keep it no longer; None if none of it was put."""
        found = self.pair if self.cache is cache else None
        self.cache = self.pair = None
        return found


@dataclass(frozen=True, slots=True)
class PromptPlan(PagedPlan):
    """A plan of a step whose last rows are a library's."""

    prompts: Prompts = field(kw_only=True)
    others: PagedPlan | None = field(kw_only=True)
    """Triton's plan of the rows before them; None where there are none."""
    prompt_slots: torch.Tensor = field(kw_only=True)
    """[K] int64 slots in the cache of all keys of the prompts, row after row."""
    computed: LastComputed = field(kw_only=True, default_factory=LastComputed)


@dataclass(frozen=True, slots=True)
class CachedKeys(Keys):
    """Keys and values in one layer's cache."""

    heads: Heads
    cache: PagedCache
    slots: torch.Tensor
    """[K] int64, see `PromptPlan.prompt_slots`."""
    dtype: torch.dtype
    """What they are read as."""
    computed: tuple[torch.Tensor, torch.Tensor] | None

    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Keys`."""
        return self.heads.read(self.cache, self.slots[first:last], room, self.dtype)


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """The ops of attention of one loaded model, with a library for long prompts."""

    attention: Attention
    heads: Heads
    library: Library

    def plan_attention(self, inputs: AttentionInputs, spec: KVSpec, block_size: int) -> PagedPlan:
        """See anychip.ops.attention.plan_attention; a `PromptPlan` where some last rows are worth the library.

        All is Triton's where a window hides keys from a prompt's own tokens, which libraries are not told of, and
        where the prompts' keys take more than ROOM.
        """
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
        slots = key_slots(prompts.device_key_start, table, count, block_size, self.attention.chip)
        return _with(plan, prompts, self._others(inputs, spec, plan, row) if row else None, slots)

    def _recorded(self, inputs: RecordedInputs, spec: KVSpec, plan: PagedPlan) -> PagedPlan:
        """The plan of a captured step, where only the device knows which rows there are."""
        if inputs.alone:
            tokens = (0, len(plan.slots))
            start = inputs.query_start
            return _with(plan, Prompts(0, tokens, tokens, start, start, fresh=True, alike=True), None, plan.slots)
        prompts, before = inputs.cut(self.library)
        others = self.attention.plan_attention(before, spec, plan.block_size)
        count, chip = prompts.key_start[-1], self.attention.chip
        slots = key_slots(prompts.device_key_start, inputs.block_table, count, plan.block_size, chip)
        return _with(plan, prompts, others, slots)

    def _others(self, inputs: AttentionInputs, spec: KVSpec, plan: PagedPlan, row: int) -> PagedPlan:
        """Triton's plan of the rows before `row`; `plan` is that of all rows."""
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
        computed = self._computed(cache, plan)
        if computed is not None:
            computed.put(cache, k, v)

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
        computed = self._computed(cache, plan)
        rotated = None if computed is None else torch.empty(k.shape, dtype=k.dtype, device=k.device)
        q = self.heads.prepare(q, k, v, q_norm, k_norm, eps, positions, cos_sin, cache, plan, rotated)
        if computed is not None and rotated is not None:
            computed.put(cache, rotated, v)
        return q

    def _computed(self, cache: PagedCache, plan: PagedPlan) -> LastComputed | None:
        """Where to keep a layer's keys and values for the library, if it takes them.

        A cache in codes of 8 bits is read instead: what is in it is rounded, and results must not depend on the way.
        """
        if not isinstance(plan, PromptPlan):
            return None
        form_a_batch = plan.prompts.fresh and plan.prompts.alike
        return plan.computed if form_a_batch and self.library.takes_computed and cache.whole else None

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
        first, pair = plan.prompts.first_token, plan.computed.take(cache)
        computed = None if pair is None else (pair[0][first:], pair[1][first:])
        keys = CachedKeys(self.heads, cache, plan.prompt_slots, q.dtype, computed)
        if plan.others is None:
            return self.library.attend(q, keys, plan.prompts, scale)
        out = self.attention.paged_attention(q, cache, plan.others, scale)
        self.library.attend(q[first:], keys, plan.prompts, scale, out[first:])
        return out


def _with(plan: PagedPlan, prompts: Prompts, others: PagedPlan | None, slots: torch.Tensor) -> PromptPlan:
    known = {each.name: getattr(plan, each.name) for each in fields(PagedPlan)}
    return PromptPlan(**known, prompts=prompts, others=others, prompt_slots=slots)


def _prompts(inputs: AttentionInputs, row: int) -> Prompts:
    """The rows from `row` on."""
    first, lengths = int(inputs.host_query_start[row]), inputs.host_seq_lens[row:]
    start = tuple((inputs.host_query_start[row:] - first).tolist())
    key_start = (0, *np.cumsum(lengths).tolist())
    device_start = inputs.query_start[row:] - first if first else inputs.query_start
    alike = len({*zip(np.diff(start), lengths, strict=True)}) == 1
    if start == key_start:
        return Prompts(first, start, key_start, device_start, device_start, fresh=True, alike=alike)
    device_key_start = torch.zeros_like(device_start)
    torch.cumsum(inputs.seq_lens[row:], 0, dtype=torch.int32, out=device_key_start[1:])
    return Prompts(first, start, key_start, device_start, device_key_start, fresh=False, alike=alike)


def first_taken(query_start: Int32, seq_lens: Int32, library: Library) -> int:
    """The row from which on all rows are worth a library; the number of rows if the last one is not.

    query_start [R+1] and seq_lens [R], both on the host.
    """
    tokens = np.diff(query_start)
    other = np.flatnonzero((tokens < library.min_tokens) | (seq_lens > library.max_keys_per_token * tokens))
    return int(other[-1]) + 1 if len(other) else 0


def key_bytes(count: int, spec: KVSpec) -> int:
    """Bytes of `count` keys and values of one layer outside the cache, as 16-bit numbers."""
    return 2 * count * sum(math.prod(plane.shape) for plane in spec.planes if plane.name in ("k", "v"))
