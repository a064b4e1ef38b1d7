from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.runner.driver import GREEDY, ROWS, admit, batch, continuation, prompt, run, started

from anychip.engine.batch import PENDING, RowSampling
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Plane
from anychip.reference.platform import ReferencePlatform
from anychip.runner.captured import CapturedSteps, bucket_sizes
from anychip.runner.inputs import Computed
from anychip.sample.send import plain_send

CPU = torch.device("cpu")


class Captured(ReferencePlatform):
    """Bare sizes; what is recorded is simply called again."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def compile(self, step, plan):
        otherwise = super().compile(step, plan)
        self.steps = CapturedSteps(step, plan, self.device, self.send, lambda run: run, otherwise, self.sizes)
        return self.steps


def decoded(platform, samplings, steps=5):
    """Tokens of several rows that decode together, each step's inputs still on the device."""
    runner = started(platform, dtype="float32")
    prompts = [prompt(5 + row, row) for row in range(len(samplings))]
    rows = range(len(samplings))
    admitted = [admit(row, prompts[row], samplings[row]) for row in rows]
    results = [run(runner, batch([(row, prompts[row], 0) for row in rows], admitted))]
    for i in range(steps):
        results.append(run(runner, batch([(row, [PENDING], len(prompts[row]) + i) for row in rows])))
    return [result.token_ids[np.argsort(result.rows)].tolist() for result in results]


@pytest.mark.parametrize("sizes", [(1, 2, 3), (4, 6), (2,)], ids=str)
@pytest.mark.parametrize(
    "other", [{}, {"temperature": 0.9, "top_p": 0.8}, {"presence_penalty": 1.5}, {"logprobs": 2}], ids=str
)
def test_padded_and_captured_steps_sample_the_same(sizes, other):
    samplings = [GREEDY, RowSampling(**{"seed": 3, "temperature": 0.0, **other}), GREEDY]
    platform = Captured(sizes)
    assert decoded(platform, samplings) == decoded(ReferencePlatform(), samplings)
    fitting = [[size for size in sizes if size >= rows] for rows in (1, 3)]
    assert set(platform.steps.buckets) == {found[0] for found in fitting if found}


def test_a_bucket_pads_with_the_null_block_and_forgets_the_step_before():
    platform = Captured((ROWS,))
    runner = started(platform, dtype="float32")
    ids = prompt(9)
    expected = continuation(started(ReferencePlatform(), dtype="float32"), 0, ids, 4)
    full = [admit(row, prompt(7, row + 20)) for row in range(ROWS)]
    run(runner, batch([(row, prompt(7, row + 20), 0) for row in range(ROWS)], full))
    run(runner, batch([(row, [PENDING], 7) for row in range(ROWS)]))
    before = [cache.k.clone() for cache in runner._caches]
    tokens = [int(run(runner, batch([(2, ids, 0)], [admit(2, ids)], tuple(range(ROWS)))).token_ids[0])]
    for i in range(3):
        tokens.append(int(run(runner, batch([(2, [PENDING], 9 + i)])).token_ids[0]))
    assert tokens == expected
    others = [block for row in range(ROWS) if row != 2 for block in range(1 + row * 8, 9 + row * 8)]
    for cache, old in zip(runner._caches, before, strict=True):
        assert torch.equal(cache.k[others], old[others])


def test_every_group_gets_its_own_table():
    plane = Plane("k", (1, 4), "float32")
    groups = tuple(KVGroup(KVSpec("full", (plane,), window), (layer,), 9) for layer, window in ((0, None), (1, 8)))
    plan, seen = KVPlan(groups, 4, 3, 32, 16), []

    def step(inputs):
        seen.append([group.block_table.clone() for group in inputs.groups])
        logits = torch.zeros(len(inputs.rows), 5)
        return Computed(inputs, logits, logits, logits.argmax(-1))

    steps = CapturedSteps(step, plan, CPU, plain_send(CPU), lambda run: run, lambda batch, greedy: None, (2,))
    tables = (np.array([[1, 2], [3, 0]], np.int32), np.array([[5, 6], [7, 0]], np.int32))
    made = batch([(0, [1], 5), (1, [2], 2)])
    object.__setattr__(made, "block_tables", tables)
    steps(made, True)
    assert [table[:, :2].tolist() for table in seen[-1]] == [table.tolist() for table in tables]
    assert seen[-1][0].shape == (2, 8)
    assert not seen[0][0].any()


def test_sizes_leave_little_to_padding():
    assert bucket_sizes(1) == (1,)
    assert bucket_sizes(3) == (1, 2, 3)
    for limit in (8, 100, 256, 1000):
        sizes = bucket_sizes(limit)
        assert sizes[-1] == limit
        assert len(set(sizes)) == len(sizes) <= 60
        assert all(big <= max(small + 8, 1.25 * small) for small, big in pairwise(sizes))
