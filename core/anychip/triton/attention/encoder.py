"""Launching an encoder's attention: over whole prompts, in both directions, without a cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from anychip.ops.ragged import Ragged
from anychip.triton.attention.queries import LOG2_E
from anychip.triton.attention.tiles import query_tile
from anychip.triton.chip import Chip
from anychip.triton.powers import padded
from anychip.triton.programs.ragged import attend_ragged
from anychip.triton.rows import unit_stride
from anychip.triton.tuning import Tile

MOST_KEYS = 64
"""Most keys of a tile."""
SMALL_HEAD = 64
"""Head size up to which more stages and rows fit in shared memory."""


@dataclass(frozen=True, slots=True)
class RaggedAttention:
    """The attention of encoders on one chip."""

    chip: Chip

    def ragged_attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Ragged, scale: float
    ) -> torch.Tensor:
        """See anychip.ops.ragged.ragged_attention."""
        q, k, v = unit_stride(q), unit_stride(k), unit_stride(v)
        tokens, heads, dim = q.shape
        out = torch.empty(tokens, heads, v.shape[2], dtype=q.dtype, device=q.device)
        assert v.shape[2] == dim, "keys and values of different sizes"
        tile = _without_table(query_tile(self.chip, q.dtype, dim, tokens * heads, rows.longest), dim)
        if tokens:
            attend_ragged[(len(rows.start) - 1, -(-rows.longest // tile.rows), heads)](
                q, k, v, rows.start, out, scale * LOG2_E, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
                v.stride(0), v.stride(1), G=heads // k.shape[1], D=dim, BLOCK_M=tile.rows, BLOCK_N=tile.keys,
                BLOCK_D=padded(dim), **tile.launch, **self.chip.order,
            )  # fmt: skip
        return out


def _without_table(tile: Tile, dim: int) -> Tile:
    """A tile of paged attention, reduced for a program without a block table.

    There each stage loads its keys and values at once, which takes more shared memory.
    """
    if dim <= SMALL_HEAD:
        return replace(tile, keys=min(tile.keys, MOST_KEYS), stages=min(tile.stages, 3))
    rows, warps = min(tile.rows, 64), 8 if tile.rows > 16 else tile.warps
    return replace(tile, rows=rows, keys=min(tile.keys, MOST_KEYS), warps=warps, stages=min(tile.stages, 2))
