"""Powers of two: no axis of a tile in Triton is anything else."""

from __future__ import annotations

MIN_TILE = 16
"""Rows, columns and inputs of the smallest matrix instruction that every chip has."""


def power_of_two(size: int, least: int = 2) -> int:
    """The smallest power of two that is not below `size`, and not below `least`, which is one too."""
    return max(least, 1 << (size - 1).bit_length())


def padded(size: int) -> int:
    """An axis of a tile that holds `size` elements and that a matrix instruction reads: 16 at least."""
    return power_of_two(size, MIN_TILE)
