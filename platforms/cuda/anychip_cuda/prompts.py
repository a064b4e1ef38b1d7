"""Attention of long prompts that begin with their first token, through cuDNN: one product of queries and keys each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from anychip.engine.batch import Int32
from anychip.ops.parts import PagedAttention
from anychip.triton.cache import PagedCache
from anychip.triton.plan import PagedPlan
from anychip.triton.rotary import Heads

MIN_TOKENS = 1024
"""From here on reading the keys out of the cache costs less than it gains."""
GRAIN = 256
"""Lengths come in multiples of it: for each that it has not seen, cuDNN plans for 40 ms."""
MAX_HEAD_DIM = 128
DIM_GRAIN = 8
"""cuDNN takes heads of a multiple of it alone."""


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """Attention whose steps with nothing but long fresh prompts beside single tokens go to cuDNN."""

    paged: PagedAttention
    """For all other steps."""
    heads: Heads
    backend: SDPBackend = SDPBackend.CUDNN_ATTENTION

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
        plain = not softcap and sinks is None and q.dtype.itemsize == 2
        if not (plain and takes_heads(q.shape[2]) and only_fresh(plan)):
            return self.paged(q, cache, plan, scale, softcap, sinks)
        single, start = plan.inputs.num_single, plan.inputs.host_query_start.tolist()
        rows = list(pairwise(start[single:]))
        lengths = {last - first for first, last in rows}
        if not single and len(lengths) == 1 and len(q) % (GRAIN * len(rows)) == 0:
            return self._attend(q, *self.heads.read(cache, plan.slots, len(q), q.dtype), len(rows), scale)
        attended = [self._prompt(q[first:last], cache, plan.slots[first:last], scale) for first, last in rows]
        if not single and len(rows) == 1:
            return attended[0]
        out = self.paged(q, cache, replace(plan, queries=None), scale)
        for (first, last), prompt in zip(rows, attended, strict=True):
            out[first:last] = prompt
        return out

    def _prompt(self, q: torch.Tensor, cache: PagedCache, slots: torch.Tensor, scale: float) -> torch.Tensor:
        """One prompt, by what cuDNN has planned for its length rounded up: none of its tokens sees those behind it."""
        tokens, room = len(q), -(-len(q) // GRAIN) * GRAIN
        k, v = self.heads.read(cache, slots, room, q.dtype)
        return self._attend(_longer(q, room), k, v, 1, scale)[:tokens]

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, prompts: int, scale: float) -> torch.Tensor:
        """Prompts of one length, each by itself. q [T, N, D], k and v [T, M, D] -> [T, N, D]; none is copied."""
        if q.is_meta:  # torch would take it apart, and import its compiler for that
            return torch.empty(q.shape, dtype=q.dtype, device=q.device)
        queries, keys, values = (x.unflatten(0, (prompts, -1)).transpose(1, 2) for x in (q, k, v))
        with sdpa_kernel(self.backend):
            attended = functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=scale, enable_gqa=True
            )
        return attended.transpose(1, 2).flatten(0, 1)


def cudnn_attends(device: torch.device) -> bool:
    """Whether torch has cuDNN's attention for a GPU, asked with such tensors as a prompt brings."""
    q, k = (torch.empty(1, heads, GRAIN, MAX_HEAD_DIM, dtype=torch.float16, device=device) for heads in (4, 1))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.backends.cuda.can_use_cudnn_attention(
            torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, True, True)
        )


def takes_heads(dim: int) -> bool:
    """Whether cuDNN attends with heads of so many numbers."""
    return dim <= MAX_HEAD_DIM and dim % DIM_GRAIN == 0


def _longer(x: torch.Tensor, lines: int) -> torch.Tensor:
    """x [t, N, D] and what lies behind it in memory, whatever that is, [lines, N, D]; a copy where it ends there."""
    end = (x.storage_offset() + lines * x.stride(0)) * x.itemsize
    if x.is_contiguous() and end <= x.untyped_storage().nbytes():
        return x.as_strided((lines, *x.shape[1:]), x.stride())
    longer = x.new_empty(lines, *x.shape[1:])
    longer[: len(x)] = x
    return longer


def only_fresh(plan: PagedPlan) -> bool:
    """Whether all rows with several tokens are long, bring all that is in their cache, and see all of it."""
    inputs = plan.inputs
    if not long_and_fresh(inputs.host_query_start, inputs.host_seq_lens, inputs.num_single):
        return False
    return not plan.window or int(inputs.host_seq_lens[inputs.num_single :].max()) <= plan.window


def long_and_fresh(query_start: Int32, seq_lens: Int32, num_single: int) -> bool:
    """Whether there are rows with several tokens, and each is long and brings all that will be in its cache."""
    lengths = seq_lens[num_single:]
    fresh = np.diff(query_start[num_single:]) == lengths
    return len(lengths) > 0 and bool((fresh & (lengths >= MIN_TOKENS)).all())
