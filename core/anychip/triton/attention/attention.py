"""Paged attention: rows with one token cut their context in pieces, other rows cut their tokens in tiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.attention import AttentionInputs
from anychip.plugin.contract import KVSpec
from anychip.triton.attention.cache import PagedCache
from anychip.triton.attention.plan import UNIT, Contexts, PagedPlan, make_plan
from anychip.triton.attention.queries import QueryAttention, Scoring
from anychip.triton.attention.tiles import context_tiles, query_way
from anychip.triton.chip import Chip
from anychip.triton.powers import padded
from anychip.triton.programs.contexts import attend_contexts, join_pieces
from anychip.triton.tuning import MANY, Tile


@dataclass(frozen=True, slots=True)
class Attention:
    """Planning and reading the cache, for one loaded model."""

    chip: Chip
    num_heads: int
    dtype: torch.dtype
    """Type of the queries; a cache may hold codes of 8 bits."""

    def plan_attention(self, inputs: AttentionInputs, spec: KVSpec, block_size: int) -> PagedPlan:
        """See anychip.ops.attention.plan_attention."""
        kv_heads, dim = spec.planes[0].shape
        group = self.num_heads // kv_heads
        tokens = inputs.positions.shape[0] - inputs.num_single
        size = dim, tokens * self.num_heads, inputs.max_query * group
        way = query_way(self.chip, self.dtype, *size, block_size, spec.coded)
        pieces = max(1, self.chip.tuning.waves * self.chip.processors // kv_heads)
        tiles = context_tiles(self.chip.tuning, self.dtype, dim, group, inputs.num_single, spec.coded)
        return make_plan(inputs, spec, block_size, pieces, group, way, tiles, self.chip)

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
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        scoring = Scoring(scale, softcap, sinks)
        if plan.contexts is not None:
            _attend_contexts(q, cache, plan, plan.contexts, scoring, out, self.chip)
        if plan.queries is not None:
            QueryAttention(q, cache, plan, plan.queries, scoring, out, self.chip).launch()
        return out


def _attend_contexts(
    q: torch.Tensor,
    cache: PagedCache,
    plan: PagedPlan,
    contexts: Contexts,
    scoring: Scoring,
    out: torch.Tensor,
    chip: Chip,
) -> None:
    heads, dim, kv_heads, tile = q.shape[1], q.shape[2], cache.k.shape[1], contexts.tile
    partial = torch.empty(contexts.sums, heads, dim, dtype=torch.float32, device=q.device)
    statistics = torch.empty(contexts.sums, heads, 2, dtype=torch.float32, device=q.device)
    table = plan.inputs.block_table
    attend_contexts[(kv_heads, contexts.programs)](
        q, cache.k, cache.v, cache.k_scale, cache.v_scale, table, contexts.pieces, contexts.sharers,
        contexts.row_pieces, out, partial, statistics, scoring.sinks, scoring.factor, scoring.softcap, q.stride(0),
        q.stride(1), table.stride(0), G=heads // kv_heads, D=dim, PAGE=plan.block_size,
        STARTS=UNIT if chip.tuning.context_blocks and not plan.window else 1, CODED=not cache.whole,
        SOFTCAP=scoring.softcap > 0, SINKS=scoring.sinks is not None, STAGES=tile.stages,
        BLOCK_M=tile.rows, BLOCK_N=tile.keys, BLOCK_D=padded(dim), **_shared(contexts.shared), **tile.launch,
        **chip.order,
    )  # fmt: skip
    rows, together = plan.inputs.num_single, heads // kv_heads if plan.inputs.num_single >= MANY else 1
    join_pieces[(rows, heads // together)](
        partial, statistics, contexts.row_pieces, out, D=dim, HEADS=together, BLOCK_D=padded(dim), BLOCK_P=32,
        num_warps=chip.tuning.warps(64), **chip.order,
    )  # fmt: skip


def _shared(tile: Tile | None) -> dict[str, int]:
    if tile is None:
        return {"SHARED_M": 0, "SHARED_N": 0, "SHARED_STAGES": 0}
    return {"SHARED_M": tile.rows, "SHARED_N": tile.keys, "SHARED_STAGES": tile.stages}
