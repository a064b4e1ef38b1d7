"""The pool of blocks and the prefix index against lists and dicts."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anychip.cache.blocks import BlockPool
from anychip.cache.prefix import PrefixIndex, extend_chain, root_hash

USABLE = 6
_hashes = st.integers(0, 8).map(lambda number: bytes([number]))


class PoolMachine(RuleBasedStateMachine):
    """The model: counts of references, the hash of each block, and the free blocks as a plain list."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(USABLE + 1)
        self.references = dict.fromkeys(range(1, USABLE + 1), 0)
        self.hashes = {}
        self.free = list(range(1, USABLE + 1))

    def _held(self):
        return [block for block, count in self.references.items() if count]

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def take(self, data):
        count = data.draw(st.integers(1, len(self.free)))
        expected, self.free = self.free[:count], self.free[count:]
        assert self.pool.take(count) == expected
        for block in expected:
            self.hashes.pop(block, None)
            self.references[block] = 1

    @precondition(lambda self: self.hashes)
    @rule(data=st.data())
    def acquire(self, data):
        blocks = data.draw(st.lists(st.sampled_from(sorted(self.hashes)), unique=True))
        self.pool.acquire(blocks)
        for block in blocks:
            self.references[block] += 1
            if block in self.free:
                self.free.remove(block)

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def release(self, data):
        blocks = data.draw(st.lists(st.sampled_from(self._held()), unique=True))
        self.pool.release(blocks)
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free.insert(len(self.free) if block in self.hashes else 0, block)

    @precondition(lambda self: self._held())
    @rule(data=st.data(), block_hash=_hashes)
    def publish(self, data, block_hash):
        block = data.draw(st.sampled_from(self._held()))
        self.pool.index.publish(block, block_hash)
        if block not in self.hashes and block_hash not in self.hashes.values():
            self.hashes[block] = block_hash

    @rule()
    def reset(self):
        self.pool.reset_index()
        for block in self.free:
            self.hashes.pop(block, None)

    @invariant()
    def same_as_the_model(self):
        assert self.pool.references == [0, *self.references.values()]
        assert self.pool.free_blocks() == self.free
        assert self.pool.num_free == len(self.free)
        assert len(self.pool.index) == len(self.hashes)
        assert all(self.pool.index.find(block_hash) == block for block, block_hash in self.hashes.items())
        assert all((block in self.pool.index) == (block in self.hashes) for block in self.references)

    @invariant()
    def uncached_blocks_are_taken_first(self):
        cached = [block in self.pool.index for block in self.free]
        assert cached == sorted(cached)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(stateful_step_count=25)


def test_the_least_recently_used_block_goes_first_and_tails_before_heads():
    pool = BlockPool(5)
    first, second = pool.take(2), pool.take(2)
    for number, block in enumerate([*first, *second]):
        pool.index.publish(block, bytes([number]))
    pool.release(reversed(first))
    pool.release(reversed(second))
    pool.acquire(first)
    pool.release(reversed(first))
    assert pool.take(4) == [second[1], second[0], first[1], first[0]]
    assert len(pool.index) == 0


def test_misuse_is_our_own_bug():
    pool = BlockPool(3)
    with pytest.raises(AssertionError, match="more blocks"):
        pool.take(3)
    with pytest.raises(AssertionError, match="free block"):
        pool.release([1])


def test_the_first_block_with_a_hash_keeps_it():
    index = PrefixIndex()
    index.publish(1, b"a")
    index.publish(2, b"a")
    index.publish(1, b"b")
    assert (index.find(b"a"), index.find(b"b"), 2 in index) == (1, None, False)
    index.forget(2)
    index.forget(1)
    assert index.find(b"a") is None
    index.publish(2, b"a")
    assert index.find(b"a") == 2


def _chain(tokens, size=2, salt=""):
    chain = []
    extend_chain(chain, np.array(tokens, np.int32), size, root_hash(salt))
    return chain


def test_a_chain_covers_full_blocks_and_all_that_is_before_them():
    assert len(_chain([1, 2, 3])) == 1
    assert _chain([1, 2, 3, 4])[0] == _chain([1, 2, 9, 9])[0]
    assert _chain([1, 2, 3, 4])[1] != _chain([9, 9, 3, 4])[1]
    assert len({*_chain([1, 1, 1, 1]), *_chain([1, 1], salt="x"), *_chain([1, 1, 1, 1], size=4)}) == 4


def test_a_chain_grows_to_what_it_would_be_at_once():
    chain, tokens = [], np.arange(20, dtype=np.int32)
    for end in (3, 4, 5, 11, 20):
        extend_chain(chain, tokens[:end], 2, root_hash("s"))
    assert chain == _chain(range(20), salt="s")
