"""Choosing tiles of attention from a chip's `Tuning`, by type, head size, and how much there is to compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from anychip.triton.chip import Chip
from anychip.triton.powers import MIN_TILE, padded
from anychip.triton.tuning import CROWD, MANY, Tile, Tuning

Way = Literal["read", "copied", "grouped"]
"""How keys reach shared memory: loaded by all threads (programs/queries.py), copied in tiles by the chip
(programs/pages.py), or so copied by a warp that does nothing else (gluon_programs/groups.py)."""
LARGE_HEAD = 128
"""Larger heads have tiles of their own."""
LEAST_GROUPED = 64
"""Smallest head size of programs with groups of warps: 64 numbers of 16 bits fill a swizzled row of 128 bytes."""
COPIED = 64
"""Keys that programs with groups of warps copy at once; they lie in one block of the cache."""
LINE = 8
"""Head sizes have to be multiples of it where the chip copies tiles: 16 bytes in numbers of 16 bits."""


def context_tile(tuning: Tuning, dtype: torch.dtype, dim: int, group: int, coded: bool = False) -> Tile:
    """For one token against its context. `dim`: head size; `group`: query heads of a key head; `coded`: 8 bits."""
    tile = tuning.context_coded if coded else tuning.context
    if dim > LARGE_HEAD:
        tile = tuning.context_large
    if dtype.itemsize > 2:
        tile = tuning.context_float32
    return replace(tile, rows=max(tile.rows, padded(group)))


def context_tiles(
    tuning: Tuning, dtype: torch.dtype, dim: int, group: int, rows: int, coded: bool = False
) -> tuple[Tile, Tile]:
    """Tiles for `rows` rows of one token: of a token alone with its context, and of several that share one."""
    tile = context_tile(tuning, dtype, dim, group, coded)
    if coded and rows >= CROWD and tuning.context_coded_crowd and dim <= LARGE_HEAD and dtype.itemsize == 2:
        tile = replace(tuning.context_coded_crowd, rows=tile.rows)
    if rows < CROWD or tuning.context_crowd is None or dim > LARGE_HEAD or dtype.itemsize > 2 or coded:
        return tile, tile
    alone, shared = tuning.context_many if rows >= MANY and tuning.context_many else tuning.context_crowd
    return replace(alone, rows=max(alone.rows, padded(group))), shared


def query_tile(chip: Chip, dtype: torch.dtype, dim: int, lines: int, longest: int, coded: bool = False) -> Tile:
    """For rows that bring several tokens, read by all threads.

    `lines`: tokens times query heads, of all such rows. `longest`: tokens of the longest one, times the query heads
    that share a key head. `coded`: the cache holds codes of 8 bits.
    """
    tuning = chip.tuning
    if dtype.itemsize > 2:
        return tuning.query_float32
    if dim > LARGE_HEAD:
        return tuning.query_wide
    if longest <= MIN_TILE:
        return tuning.query_few
    if lines < 128 * chip.processors:
        return tuning.query_coded_small if coded else tuning.query_small
    if coded:
        return tuning.query_coded
    return tuning.query_medium if lines < 512 * chip.processors else tuning.query_large


def query_way(
    chip: Chip, dtype: torch.dtype, dim: int, lines: int, longest: int, block_size: int, coded: bool
) -> tuple[Way, Tile]:
    """How rows that bring several tokens read the cache, and their tile; arguments as for `query_tile`."""
    tuning = chip.tuning
    if chip.descriptors and dtype.itemsize == 2 and not coded and dim % LINE == 0 and longest > MIN_TILE:
        small, large = lines < 128 * chip.processors, dim > LARGE_HEAD
        grouped = tuning.grouped_wide if large else tuning.grouped
        if grouped is not None and not small and padded(dim) >= LEAST_GROUPED and block_size % COPIED == 0:
            return "grouped", grouped
        tile = tuning.copied_small if small else tuning.copied
        tile = tuning.copied_wide if large else tile
        if block_size % tile.keys == 0:
            return "copied", tile
    return "read", query_tile(chip, dtype, dim, lines, longest, coded)
