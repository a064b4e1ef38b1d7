"""Sizes of tiles, by type and head size: what fits in registers and shared memory without spilling."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip

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
    waves: int = 4
    """Pieces of context a processor, when there are enough."""

    def context(self, dtype: torch.dtype, dim: int, group: int, chip: Chip) -> Tile:
        """For one token's `group` heads against a long context: small, with many loads under way."""
        if self.given_context is not None:
            return self.given_context
        rows = max(MIN_ROWS, padded(group))
        if dtype.itemsize > 2 or dim > 128:
            return Tile(rows, 32, 4, 2)
        return Tile(rows, 64, 4, chip.stages(4))

    def query(self, dtype: torch.dtype, dim: int, lines: int, longest: int, chip: Chip) -> Tile:
        """For tokens times heads: as large as accumulators allow, smaller where few would leave processors idle.

        `lines` is how many there are of tokens times heads, over all cached heads, and `longest` a row's most of one.
        """
        if self.given_query is not None:
            return self.given_query
        if dtype.itemsize > 2:
            return Tile(32, 32, 4, 1)
        stages = 6 if chip.shared_memory > 128 * 1024 else 3
        if dim > 128:
            return Tile(128, 32, 8, 2)
        if longest <= MIN_ROWS:
            return Tile(MIN_ROWS, 64, 4, min(stages, 4))
        if lines < 128 * chip.processors:
            return Tile(64, 64, 4, min(stages, 4))
        if lines < 512 * chip.processors or stages < 6:
            return Tile(128, 64, 8, stages)
        return Tile(128, 128, 8, stages)


def padded(size: int) -> int:
    """The next power of two, 16 at least: what a tile's axis takes for `size`."""
    return max(16, 1 << (size - 1).bit_length())
