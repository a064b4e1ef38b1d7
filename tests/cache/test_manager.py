"""Block tables of several groups against a dict of what each row holds."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine.plans import make_plan

from anychip.cache.manager import CacheManager
from anychip.cache.prefix import extend_chain, root_hash

SIZE, ROWS, LENGTH = 2, 4, 16


def _hashes(tokens):
    chain = []
    extend_chain(chain, np.array(tokens, np.int32), SIZE, root_hash(""))
    return chain


class ManagerMachine(RuleBasedStateMachine):
    """The model: the tokens of each row, and how many its blocks cover."""

    @initialize(sizes=st.lists(st.integers(8, 20), min_size=1, max_size=3), caching=st.booleans())
    def start(self, sizes, caching):
        plan = make_plan(*(size + 1 for size in sizes), block_size=SIZE, max_num_seqs=ROWS, max_model_len=LENGTH)
        self.manager, self.caching = CacheManager(plan, caching), caching
        self.sizes = sizes
        self.tokens, self.covered, self.published = {}, {}, {}

    @precondition(lambda self: len(self.tokens) < ROWS)
    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=LENGTH))
    def admit(self, tokens):
        chain = _hashes(tokens)
        reused = chain[: self.manager.lookup(chain)]
        assert self.caching or not reused
        blocks = self.manager.blocks_for(len(tokens))
        if self.manager.free_after_reuse(reused) < blocks - len(reused):
            return
        free = [group.pool.num_free for group in self.manager.groups]
        after = self.manager.free_after_reuse(reused)
        expected = [[group.pool.index.find(one) for one in reused] for group in self.manager.groups]
        row = min(set(range(ROWS)) - set(self.tokens))
        self.manager.admit(row, reused, len(tokens))
        self.tokens[row], self.covered[row], self.published[row] = tokens, len(tokens), len(reused)
        for group, blocks_reused in zip(self.manager.groups, expected, strict=True):
            assert group.blocks(row)[: len(reused)] == blocks_reused
        assert self.manager.num_free == after - (blocks - len(reused))
        assert all(group.pool.num_free <= was for group, was in zip(self.manager.groups, free, strict=True))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def grow(self, data):
        row = data.draw(st.sampled_from(sorted(self.tokens)))
        length = data.draw(st.integers(self.covered[row], LENGTH))
        missing = self.manager.missing(row, length)
        assert missing == -(-length // SIZE) - -(-self.covered[row] // SIZE)
        lacking = self.manager.lacking(np.array([row], np.int32), np.array([length], np.int32))
        assert lacking.tolist() == ([0] if missing else [])
        if missing <= self.manager.num_free:
            self.manager.grow(row, length)
            self.covered[row] = length
            self.tokens[row] = (self.tokens[row] + [1] * LENGTH)[: max(length, len(self.tokens[row]))]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def extend(self, data):
        rows = [row for row, covered in self.covered.items() if self.manager.blocks_for(covered) < LENGTH // SIZE]
        rows = rows[: self.manager.num_free]
        if rows:
            self.manager.extend(np.array(rows, np.int32))
        for row in rows:
            self.covered[row] = (self.manager.blocks_for(self.covered[row]) + 1) * SIZE
            self.tokens[row] = (self.tokens[row] + [1] * LENGTH)[: max(self.covered[row], len(self.tokens[row]))]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def publish(self, data):
        row = data.draw(st.sampled_from(sorted(self.tokens)))
        chain = _hashes(self.tokens[row])
        end = data.draw(st.integers(self.published[row], len(chain)))
        self.manager.publish(row, self.published[row], chain[self.published[row] : end])
        self.published[row] = end
        assert self.manager.lookup(chain[:end]) == (end if self.caching else 0)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def release(self, data):
        row = data.draw(st.sampled_from(sorted(self.tokens)))
        self.manager.release(row)
        for state in (self.tokens, self.covered, self.published):
            del state[row]

    @rule()
    def reset(self):
        self.manager.reset_prefix_cache()
        for group in self.manager.groups:
            assert not [block for block in group.pool.free_blocks() if block in group.pool.index]

    @invariant()
    def adds_up(self):
        self.manager.check_integrity()
        held = [{block for row in self.tokens for block in group.blocks(row)} for group in self.manager.groups]
        assert self.manager.num_used == sum(map(len, held))
        assert self.manager.num_usable == sum(self.sizes)
        for group in self.manager.groups:
            for row, covered in self.covered.items():
                assert group.counts[row] == -(-covered // SIZE)

    @invariant()
    def rows_share_only_equal_beginnings(self):
        for group in self.manager.groups:
            for row, tokens in self.tokens.items():
                for other in set(self.tokens) - {row}:
                    for place, block in enumerate(group.blocks(row)):
                        if block in group.blocks(other):
                            end = (place + 1) * SIZE
                            assert group.blocks(other).index(block) == place
                            assert tokens[:end] == self.tokens[other][:end]


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(stateful_step_count=25)


def test_a_prefix_counts_only_where_every_group_has_it():
    manager = CacheManager(make_plan(10, 5, block_size=SIZE, max_num_seqs=ROWS, max_model_len=LENGTH))
    first, second = _hashes([1] * 6), _hashes([2] * 6)
    manager.admit(0, [], 6)
    manager.publish(0, 0, first)
    manager.release(0)
    manager.admit(0, [], 6)  # the second group has to evict two blocks for it, the first group none
    assert (manager.lookup(first), manager.lookup(second)) == (1, 0)
    assert all(manager.groups[0].pool.index.find(one) for one in first)
    manager.check_integrity()


def test_a_manager_without_groups_has_room_for_everything():
    manager = CacheManager(make_plan())
    manager.admit(0, [], 16)
    assert manager.missing(0, 16) == 0
    assert manager.num_free > 10**9
    manager.release(0)
    manager.check_integrity()


def _lose_a_reference(group):
    group.pool.references[group.blocks(0)[0]] -= 1


def _invent_a_reference(group):
    group.pool.references[group.pool.free_blocks()[0]] += 1


def _hold_the_null_block(group):
    group.table[0, 0] = 0


def _name_a_block_twice(group):
    group.table[0, 0] = group.table[0, 1]


def _leak_a_block(group):
    group.pool._unlink(group.pool.free_blocks()[0])


def _miscount_the_free(group):
    group.pool.num_free += 1


def _free_a_held_block(group):
    group.pool._link(group.blocks(0)[0], newest=True)


def _tie_the_free_list_in_a_loop(group):
    first, second = group.pool.free_blocks()[:2]
    group.pool._next[second] = first


def _break_the_list_backwards(group):
    block = group.pool.free_blocks()[1]
    group.pool._previous[block] = block


def _leave_a_block_behind_the_end(group):
    group.table[0, group.counts[0]] = 7


def _forget_the_hash_of_a_block(group):
    group.pool.index._hash_of.clear()


def _find_a_block_by_a_wrong_hash(group):
    group.pool.index._block_of[b"wrong"] = group.blocks(0)[0]


def _cache_the_null_block(group):
    group.pool.index.publish(0, b"null")


@pytest.mark.parametrize(
    "corrupt",
    [
        _lose_a_reference,
        _invent_a_reference,
        _hold_the_null_block,
        _name_a_block_twice,
        _leak_a_block,
        _miscount_the_free,
        _free_a_held_block,
        _tie_the_free_list_in_a_loop,
        _break_the_list_backwards,
        _leave_a_block_behind_the_end,
        _forget_the_hash_of_a_block,
        _find_a_block_by_a_wrong_hash,
        _cache_the_null_block,
    ],
)
@pytest.mark.timeout(60)  # instead of a loop without an end
def test_each_corruption_is_found(corrupt):
    manager = CacheManager(make_plan(12, 12, block_size=SIZE, max_num_seqs=ROWS, max_model_len=LENGTH))
    manager.admit(0, [], 8)
    manager.admit(1, [], 3)
    manager.publish(0, 0, _hashes([1] * 8))
    manager.check_integrity()
    corrupt(manager.groups[1])
    with pytest.raises(AssertionError):
        manager.check_integrity()
