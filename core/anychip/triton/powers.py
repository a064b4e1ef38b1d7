"""Powers of two, which every axis of a tile is."""

from __future__ import annotations


def padded(size: int) -> int:
    """The next power of two, 16 at least: what a tile's axis takes for `size`."""
    return max(16, power(size))


def power(size: int) -> int:
    """The smallest power of two from `size` on, 2 at least."""
    return max(2, 1 << (size - 1).bit_length())
