import numpy as np
import torch

from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.plugin.contract import KVSpec, Plane
from anychip_cpu.plan import MAX_GATHERED, plan_attention

PLANE = Plane("k", (1, 4), "float32")


def plan(lengths, window=None, block_size=16):
    table, _ = shuffled_table(torch.Generator().manual_seed(0), lengths, block_size)
    inputs = batch_inputs(tuple((length - 1, 1) for length in lengths), table)
    spec = KVSpec("full" if window is None else "sliding", (PLANE, Plane("v", (1, 4), "float32")), window)
    return plan_attention(inputs, spec, block_size)


def test_rows_of_similar_length_are_one_group_in_order():
    made = plan([100, 97, 110, 105])
    assert [group.tokens for group in made.groups] == [None]
    assert made.groups[0].mask.shape == (4, 1, 112)


def test_one_long_row_does_not_pad_the_others():
    made = plan([3000, *[20] * 31])
    gathered = sum(len(group.heads) for group in made.groups)
    assert gathered == 188 + 31 * 2
    covered = np.sort(np.concatenate([group.tokens.numpy() for group in made.groups]))
    assert covered.tolist() == list(range(32))


def test_groups_are_bounded():
    made = plan([40000] * 20, block_size=64)
    assert len(made.groups) > 1
    assert all(len(group.heads) * 64 <= MAX_GATHERED for group in made.groups)


def test_a_window_gathers_only_the_blocks_it_sees():
    made = plan([3000, 2990, 5], window=20)
    assert sum(len(group.heads) for group in made.groups) <= 3 * 3
    assert all(int((group.mask == 0).sum(-1).max()) <= 20 for group in made.groups)
