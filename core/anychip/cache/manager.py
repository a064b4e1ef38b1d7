"""Block tables of all rows and KV groups, over the pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anychip.cache.blocks import BlockPool
from anychip.cache.prefix import BlockHash
from anychip.engine.batch import NULL_BLOCK, Int32
from anychip.plugin.contract import KVGroup, KVPlan


class GroupTable:
    """One KV group's pool and its table, a line a row: `table` [S, B], of which row r uses the first `counts[r]`."""

    def __init__(self, group: KVGroup, rows: int, width: int) -> None:
        self.pool = BlockPool(group.num_blocks)
        self.table: Int32 = np.full((rows, width), NULL_BLOCK, np.int32)
        self.counts: Int32 = np.zeros(rows, np.int32)

    def append(self, row: int, blocks: Sequence[int]) -> None:
        """Add blocks at the end of a row's table."""
        count = int(self.counts[row])
        self.table[row, count : count + len(blocks)] = blocks
        self.counts[row] = count + len(blocks)

    def blocks(self, row: int) -> list[int]:
        """The row's blocks, in order."""
        blocks: list[int] = self.table[row, : self.counts[row]].tolist()
        return blocks

    def clear(self, row: int) -> None:
        """Give back the row's blocks, the last first."""
        self.pool.release(reversed(self.blocks(row)))
        self.table[row, : self.counts[row]] = NULL_BLOCK
        self.counts[row] = 0


class CacheManager:
    """Gives blocks to rows. All groups of a row cover the same tokens and grow together."""

    def __init__(self, plan: KVPlan, prefix_caching: bool = True) -> None:
        self.block_size = plan.block_size
        self.prefix_caching = prefix_caching
        width = -(-plan.max_model_len // plan.block_size)
        self.groups = [GroupTable(group, plan.max_num_seqs, width) for group in plan.groups]

    @property
    def num_free(self) -> int:
        """Blocks every group can still give."""
        return min((group.pool.num_free for group in self.groups), default=2**31)

    @property
    def num_used(self) -> int:
        """Blocks that running rows hold, over all groups."""
        return sum(group.pool.num_usable - group.pool.num_free for group in self.groups)

    @property
    def num_usable(self) -> int:
        """Blocks there are, over all groups."""
        return sum(group.pool.num_usable for group in self.groups)

    @property
    def num_usable_each(self) -> int:
        """Blocks there are in every group."""
        return min((group.pool.num_usable for group in self.groups), default=0)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.block_size)

    def lookup(self, chain: Sequence[BlockHash]) -> int:
        """How many blocks from the start of `chain` every group has cached."""
        if not self.prefix_caching:
            return 0
        return min((group.pool.index.match(chain) for group in self.groups), default=0)

    def free_after_reuse(self, chain: Sequence[BlockHash]) -> int:
        """What `num_free` would be once these cached blocks were held again."""
        free = []
        for group in self.groups:
            idle = sum(group.pool.references[self._cached(group, block_hash)] == 0 for block_hash in chain)
            free.append(group.pool.num_free - idle)
        return min(free, default=2**31)

    def admit(self, row: int, reused: Sequence[BlockHash], tokens: int) -> None:
        """Give `row` the cached blocks of `reused`, then new ones up to `tokens`; the caller has checked for room."""
        for group in self.groups:
            assert group.counts[row] == 0, "a row was admitted twice"
            cached = [self._cached(group, block_hash) for block_hash in reused]
            group.pool.acquire(cached)
            group.append(row, cached)
        self.grow(row, tokens)

    def lacking(self, rows: Int32, tokens: Int32) -> npt.NDArray[np.intp]:
        """[n] indices into `rows` of those whose tables do not yet cover `tokens` [R]."""
        if not self.groups:
            return np.zeros(0, np.intp)
        return np.flatnonzero(self.groups[0].counts[rows] * self.block_size < tokens)

    def missing(self, row: int, tokens: int) -> int:
        """New blocks that `row` needs in every group to cover `tokens`."""
        return self.blocks_for(tokens) - int(self.groups[0].counts[row]) if self.groups else 0

    def grow(self, row: int, tokens: int) -> None:
        """Give `row` new blocks up to `tokens`. The caller has checked there are enough."""
        count = self.missing(row, tokens)
        if count > 0:
            for group in self.groups:
                group.append(row, group.pool.take(count))

    def extend(self, rows: Int32) -> None:
        """Give each of `rows` one new block. The caller has checked there are enough."""
        for group in self.groups:
            group.table[rows, group.counts[rows]] = group.pool.take(len(rows))
            group.counts[rows] += 1

    def publish(self, row: int, first: int, hashes: Sequence[BlockHash]) -> None:
        """Offer the row's computed blocks from index `first` on for reuse."""
        if not self.prefix_caching:
            return
        for group in self.groups:
            blocks = group.table[row, first : first + len(hashes)].tolist()
            for block, block_hash in zip(blocks, hashes, strict=True):
                group.pool.index.publish(block, block_hash)

    def release(self, row: int) -> None:
        """Give back all blocks of a row. No step under way may name them."""
        for group in self.groups:
            group.clear(row)

    def reset_prefix_cache(self) -> None:
        """Forget every cached block that no row holds."""
        for group in self.groups:
            group.pool.reset_index()

    def check_integrity(self) -> None:
        """Recount every block; an AssertionError is a bug of ours."""
        for group in self.groups:
            counted = [0] * group.pool.num_blocks
            for row in np.flatnonzero(group.counts).tolist():
                for block in group.blocks(row):
                    assert block != NULL_BLOCK, "a row holds the null block"
                    counted[block] += 1
            assert counted == group.pool.references, "references do not add up to what rows hold"
            free = group.pool.free_blocks()
            assert len(free) == len(set(free)) == group.pool.num_free, "the free list and its count disagree"
            idle = {block for block in range(1, group.pool.num_blocks) if counted[block] == 0}
            assert set(free) == idle, "the free list is not the set of blocks that nobody holds"
            behind = np.arange(group.table.shape[1]) >= group.counts[:, None]
            assert not group.table[behind].any(), "a table names a block behind its end"
            group.pool.index.check_integrity()

    @staticmethod
    def _cached(group: GroupTable, block_hash: BlockHash) -> int:
        block = group.pool.index.find(block_hash)
        assert block is not None, "a cached block vanished between lookup and use"
        return block
