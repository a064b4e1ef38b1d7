"""Launching attention of rows that bring several tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from anychip.triton.attention.cache import PagedCache
from anychip.triton.attention.plan import PagedPlan, Queries
from anychip.triton.attention.tiles import COPIED
from anychip.triton.chip import Chip
from anychip.triton.powers import padded
from anychip.triton.programs.pages import attend_pages
from anychip.triton.programs.queries import attend_queries

LOG2_E = math.log2(math.e)
"""Programs take powers of 2, which chips compute, so scores are multiplied by it."""
SWIZZLE = 128
"""Bytes of a row of shared memory within which wgmma wants 16-byte parts permuted."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the product of a query and a key becomes a score."""

    scale: float
    softcap: float
    sinks: torch.Tensor | None

    @property
    def factor(self) -> float:
        """What products are multiplied by; with a soft cap, the conversion to powers of 2 comes after it."""
        return self.scale if self.softcap else self.scale * LOG2_E


@dataclass(frozen=True, slots=True)
class QueryAttention:
    """One launch: tokens of rows that bring several, against the cache, written to `out`."""

    q: torch.Tensor
    cache: PagedCache
    plan: PagedPlan
    queries: Queries
    scoring: Scoring
    out: torch.Tensor
    chip: Chip

    def launch(self) -> None:
        """Launch it the way that was planned."""
        {"read": self._read, "copied": self._copied, "grouped": self._grouped}[self.queries.way]()

    def _read(self) -> None:
        cache, queries = self.cache, self.queries
        attend_queries[(len(queries.pieces), cache.heads)](
            self.q, cache.k, cache.v, cache.k_scale, cache.v_scale, self.plan.inputs.block_table,
            self.plan.inputs.positions, queries.pieces, *self._scores, CODED=not cache.whole,
            BLOCK_M=queries.tile.rows, **self._fixed,
        )  # fmt: skip

    def _copied(self) -> None:
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        queries, tile = self.queries, [1, self.queries.tile.keys, padded(self.q.shape[2])]
        tiles = (TensorDescriptor(x, list(x.shape), list(x.stride()), tile) for x in self.cache.pages)
        attend_pages[(len(queries.pieces), self.cache.heads)](
            self.q, *tiles, self.plan.inputs.block_table, queries.pieces, *self._scores, BLOCK_M=queries.tile.rows,
            STAGES=queries.tile.stages, **self._fixed,
        )  # fmt: skip

    def _grouped(self) -> None:
        from triton.experimental.gluon.language import NVMMASharedLayout
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        from anychip.triton.gluon_programs.groups import attend_grouped

        queries, tile = self.queries, [1, COPIED, padded(self.q.shape[2])]
        layout = NVMMASharedLayout(SWIZZLE, self.q.dtype.itemsize * 8, len(tile))
        tiles = (TensorDescriptor(x, list(x.shape), list(x.stride()), tile, layout) for x in self.cache.pages)
        heads = self.cache.heads
        attend_grouped[(min(self.chip.processors, len(queries.pieces) * heads),)](
            self.q, *tiles, self.plan.inputs.block_table, queries.pieces, queries.taken, *self._scores, heads,
            STAGES=queries.tile.stages, **self._fixed,
        )  # fmt: skip

    @property
    def _scores(self) -> tuple[Any, ...]:
        q, scoring, table = self.q, self.scoring, self.plan.inputs.block_table
        strides = q.stride(0), q.stride(1), table.stride(0)
        return self.out, scoring.sinks, scoring.factor, scoring.softcap, *strides

    @property
    def _fixed(self) -> dict[str, Any]:
        """Compile-time constants and options of the launch, the same for all ways."""
        dim, tile, scoring = self.q.shape[2], self.queries.tile, self.scoring
        return {
            "G": self.q.shape[1] // self.cache.heads, "D": dim, "PAGE": self.plan.block_size,
            "WINDOW": self.plan.window, "SOFTCAP": scoring.softcap > 0, "SINKS": scoring.sinks is not None,
            "TOKENS": self.queries.tokens, "BLOCK_N": tile.keys, "BLOCK_D": padded(dim), **tile.launch,
            **self.chip.order,
        }  # fmt: skip
