"""Sizes of tiles, by type and head size: what fits in registers and shared memory without spilling."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.shapes import dtype_of

MIN_ROWS = 16
"""Rows of the smallest matrix instruction."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of queries by keys, and how a program computes it."""

    rows: int
    keys: int
    warps: int
    stages: int

    @property
    def launch(self) -> dict[str, int]:
        """Options of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages}


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of one model's attention: given ones, or by type and head size."""

    given_context: Tile | None = None
    given_query: Tile | None = None
    waves: int = 8
    """Pieces of context a processor, when there are enough."""

    def context(self, dtype: torch.dtype, dim: int, group: int) -> Tile:
        """For one token's `group` heads against a long context: small, with many loads under way."""
        if self.given_context is not None:
            return self.given_context
        rows = max(MIN_ROWS, padded(group))
        if dtype.itemsize > 2 or dim > 128:
            return Tile(rows, 32, 4, 2)
        return Tile(rows, 64, 4, 4)

    def query(self, dtype: torch.dtype | str, dim: int) -> Tile:
        """For tokens times heads: as large as the accumulators allow."""
        if self.given_query is not None:
            return self.given_query
        dtype = dtype_of(dtype) if isinstance(dtype, str) else dtype
        if dtype.itemsize > 2:
            return Tile(32, 32, 4, 1)
        if dim > 128:
            return Tile(128, 32, 8, 2)
        return Tile(128, 64, 8, 3)


def padded(size: int) -> int:
    """The next power of two, 16 at least: what a tile's axis takes for `size`."""
    return max(16, 1 << (size - 1).bit_length())
