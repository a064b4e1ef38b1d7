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

MIN_TOKENS = 1024
"""From here on copying the keys together costs less than it gains."""
MAX_HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """Attention whose steps with nothing but long fresh prompts beside single tokens go to cuDNN."""

    paged: PagedAttention
    """For all other steps."""

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
        plain = cache.whole and not softcap and sinks is None and q.dtype.itemsize == 2 and q.shape[2] <= MAX_HEAD_DIM
        if not (plain and only_fresh(plan)):
            return self.paged(q, cache, plan, scale, softcap, sinks)
        out = self.paged(q, cache, replace(plan, queries=None), scale)
        start = plan.inputs.host_query_start[plan.inputs.num_single :].tolist()
        for row, (first, last) in enumerate(pairwise(start), plan.inputs.num_single):
            blocks = plan.inputs.block_table[row, : -(-(last - first) // plan.block_size)]
            out[first:last] = _attend(q[first:last], cache, blocks, scale)
        return out


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


def _attend(q: torch.Tensor, cache: PagedCache, blocks: torch.Tensor, scale: float) -> torch.Tensor:
    """q [t, N, D] against the t tokens in `blocks` -> [t, N, D]."""
    tokens = q.shape[0]
    k, v = (_context(plane, blocks, tokens) for plane in (cache.k, cache.v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        attended = functional.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0), k, v, is_causal=True, scale=scale, enable_gqa=True
        )
    return attended.squeeze(0).transpose(0, 1)


def _context(plane: torch.Tensor, blocks: torch.Tensor, tokens: int) -> torch.Tensor:
    """[1, M, t, D] keys or values out of [num_blocks, M, page, D]."""
    return plane.index_select(0, blocks).transpose(0, 1).flatten(1, 2)[:, :tokens].unsqueeze(0)
