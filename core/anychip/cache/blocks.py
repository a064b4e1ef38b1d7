"""The pool of KV blocks: reference counts and one list of free blocks, least recently used first.

    free list:  sentinel <-> [uncached] <-> ... <-> [cached, oldest] <-> ... <-> [cached, newest] <-> sentinel

A cached block stays in the list while nobody holds it, and leaves the prefix index when it is taken for something else.
"""

from __future__ import annotations

from collections.abc import Iterable

from anychip.cache.prefix import PrefixIndex
from anychip.engine.batch import NULL_BLOCK


class BlockPool:
    """Blocks 1 to `num_blocks` - 1; block 0 is the null block and never leaves."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.index = PrefixIndex()
        self.references = [0] * num_blocks
        self.num_free = num_blocks - 1
        self._sentinel = NULL_BLOCK
        self._next = [*range(1, num_blocks), self._sentinel]
        self._previous = [num_blocks - 1, *range(num_blocks - 1)]

    @property
    def num_usable(self) -> int:
        """All blocks but the null block."""
        return self.num_blocks - 1

    def take(self, count: int) -> list[int]:
        """`count` blocks that nobody holds, each with one reference. The caller has checked `num_free`."""
        assert count <= self.num_free, "more blocks taken than are free"
        taken = []
        for _ in range(count):
            block = self._next[self._sentinel]
            self._unlink(block)
            self.index.forget(block)
            self.references[block] = 1
            taken.append(block)
        return taken

    def acquire(self, blocks: Iterable[int]) -> None:
        """One more reference to each of these cached blocks."""
        for block in blocks:
            if self.references[block] == 0:
                self._unlink(block)
            self.references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One reference less to each; give the last blocks of a sequence first, so that its beginning lives longest."""
        for block in blocks:
            assert self.references[block] > 0, "a free block was released"
            self.references[block] -= 1
            if self.references[block] == 0:
                self._link(block, newest=block in self.index)

    def reset_index(self) -> None:
        """Forget every cached block that is free."""
        block = self._next[self._sentinel]
        while block != self._sentinel:
            self.index.forget(block)
            block = self._next[block]

    def free_blocks(self) -> list[int]:
        """The free list in the order in which it will be taken."""
        blocks: list[int] = []
        block = self._next[self._sentinel]
        while block != self._sentinel:
            assert len(blocks) < self.num_usable, "the free list runs in a circle"
            assert self._next[self._previous[block]] == block, "the free list differs read backwards"
            blocks.append(block)
            block = self._next[block]
        return blocks

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1

    def _link(self, block: int, newest: bool) -> None:
        before = self._previous[self._sentinel] if newest else self._sentinel
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self.num_free += 1
