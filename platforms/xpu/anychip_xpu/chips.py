"""Two kinds of Intel GPUs, and the tiles that were compiled for them. Nothing here was measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from anychip.triton.chip import Chip
from anychip.triton.packing import FORMATS
from anychip.triton.provider import MAX_HEAD_DIM
from anychip.triton.tuning import Tile, Tuning, WeightTile

WIDE = 16
"""Lanes of the matrix instructions that Triton uses; those of Arc's A series have 8, and are not used."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Chips that are tuned alike."""

    tuning: Tuning
    formats: tuple[str, ...]
    """Quantized formats that are kept as they are. None of these chips has arithmetic on 8-bit floats."""
    caches: tuple[str, ...]
    """Types of KV cache beside the model's own."""
    largest_head: int = MAX_HEAD_DIM
    """Head size up to which attention fits the registers."""

    def chip(self, processors: int) -> Chip:
        """One with so many cores."""
        return Chip(processors, tuning=self.tuning)


MATRIX = Kind(
    Tuning(
        vector_threads=4,
        context=Tile(16, 16, 4, 1),
        context_large=Tile(16, 16, 4, 1),
        context_coded=Tile(16, 16, 4, 1),
        query_few=Tile(16, 16, 4, 1),
        query_small=Tile(64, 16, 8, 1),
        query_medium=Tile(64, 16, 8, 1),
        query_large=Tile(128, 16, 16, 1),
        query_coded_small=Tile(64, 16, 8, 1),
        query_coded=Tile(64, 16, 8, 1),
        query_wide=Tile(32, 16, 4, 1),
        thin=WeightTile(64, 64, 8, 2),
        experts_few=WeightTile(64, 64, 8, 2),
        experts_some=WeightTile(64, 64, 8, 2),
        experts_many=WeightTile(64, 64, 8, 2),
        codes_packed=WeightTile(32, 128, 16, 1),
        codes_bytes=WeightTile(64, 64, 8, 2),
        codes_many=WeightTile(64, 64, 8, 2),
    ),
    formats=tuple(name for name in FORMATS if name != "fp8"),
    caches=("int8",),
)
"""Data Center GPU Max, and Arc from the B series on.

A warp holds a tile's keys whole, whatever the number of warps, so tiles are narrow; attention still spills a little.
"""
PLAIN = Kind(
    Tuning(
        vector_threads=8,
        context=Tile(16, 16, 8, 1),
        context_large=Tile(16, 16, 8, 1),
        query_few=Tile(16, 16, 8, 1),
        query_small=Tile(16, 16, 8, 1),
        query_medium=Tile(16, 16, 8, 1),
        query_large=Tile(16, 16, 8, 1),
        query_coded=Tile(16, 16, 8, 1),
        query_wide=Tile(16, 16, 8, 1),
        query_float32=Tile(16, 16, 8, 1),
        thin=WeightTile(16, 16, 8, 1),
        thin_float32=WeightTile(16, 16, 8, 1),
        experts_few=WeightTile(16, 16, 8, 1),
        experts_some=WeightTile(16, 16, 8, 1),
        experts_many=WeightTile(16, 16, 8, 1),
        experts_float32=WeightTile(16, 16, 8, 1),
    ),
    formats=(),
    caches=(),
    largest_head=64,
)
"""Arc's A series, where Triton multiplies without matrix instructions: a line of a product takes many registers."""


def kind_of(sub_group_sizes: Collection[int], matrix: bool) -> Kind:
    """Which kind a device is, by what its driver says: `matrix`, whether it has any matrix instructions."""
    return MATRIX if matrix and min(sub_group_sizes) == WIDE else PLAIN
