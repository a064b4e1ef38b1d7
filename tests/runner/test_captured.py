from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.runner.capturing import APART, MIXED, Captured, OnDevice
from tests.runner.driver import CONFIG, GREEDY, ROWS, admit, batch, continuation, prompt, run, started

from anychip.engine.batch import PENDING, Masks, RowSampling
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Late, Plane
from anychip.reference.platform import ReferencePlatform
from anychip.runner.bucket import Shape, widened
from anychip.runner.captured import CapturedSteps, Sizes, sizes_up_to
from anychip.runner.inputs import Computed
from anychip.sample.send import plain_send

CPU = torch.device("cpu")


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
    platform = Captured(Sizes(single=sizes))
    assert decoded(platform, samplings) == decoded(ReferencePlatform(), samplings)
    fitting = [[size for size in sizes if size >= rows] for rows in (1, 3)]
    greedy = not other
    kinds = [(rows == 1 or greedy, found) for rows, found in zip((1, 3), fitting, strict=True)]
    assert set(platform.steps.buckets) == {Shape(*found[:1] * 3, highest) for highest, found in kinds if found}


def test_a_bucket_pads_with_the_null_block_and_forgets_the_step_before():
    platform = Captured(Sizes(single=(ROWS,)))
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
        assert torch.equal(cache.k[others].view(torch.int32), old[others].view(torch.int32))  # bits: a NaN is itself


def test_padding_columns_of_a_table_are_left_out():
    made = [prompt(9), [PENDING]]
    tables = np.zeros((ROWS, 30), np.int32)
    tables[:, :8] = np.arange(1, ROWS * 8 + 1).reshape(ROWS, 8)
    tokens = []
    for table in (None, tables):
        runner = started(Captured(Sizes(single=(1,))), dtype="float32")
        run(runner, batch([(0, made[0], 0)], [admit(0, made[0])], tables=table))
        tokens.append(int(run(runner, batch([(0, made[1], 9)], tables=table)).token_ids[0]))
    assert tokens[0] == tokens[1]


def test_every_group_gets_its_own_table():
    plane = Plane("k", (1, 4), "float32")
    groups = tuple(KVGroup(KVSpec("full", (plane,), window), (layer,), 9) for layer, window in ((0, None), (1, 8)))
    plan, seen = KVPlan(groups, 4, 3, 32, 16), []

    def step(inputs):
        seen.append([group.block_table.clone() for group in inputs.groups])
        logits = torch.zeros(len(inputs.rows), 5)
        return Computed(inputs, logits, logits, logits.argmax(-1), selected=logits)

    steps = CapturedSteps(
        step, plan, CPU, plain_send(CPU), lambda run: run, lambda batch, greedy: None, Sizes(single=(2,))
    )
    tables = (np.array([[1, 2], [3, 0]], np.int32), np.array([[5, 6], [7, 0]], np.int32))
    made = replace(batch([(0, [1], 5), (1, [2], 2)]), block_tables=tables)
    steps(made, True)
    assert [table[:, :2].tolist() for table in seen[-1]] == [table.tolist() for table in tables]
    assert seen[-1][0].shape == (2, 8)
    assert not seen[0][0].any()


def test_sizes_leave_little_to_padding():
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(3) == (1, 2, 3)
    for limit in (8, 100, 256, 1000):
        sizes = sizes_up_to(limit)
        assert sizes[-1] == limit
        assert len(set(sizes)) == len(sizes) <= 60
        assert all(big <= max(small + 8, 1.25 * small) for small, big in pairwise(sizes))
    assert sizes_up_to(4096, 64)[:3] == (64, 128, 192)


@pytest.mark.parametrize("sizes", [MIXED, APART], ids=["together", "apart"])
@pytest.mark.parametrize("sampling", [GREEDY, RowSampling(seed=3, temperature=0.9, top_k=20)], ids=["greedy", "random"])
def test_prompts_and_decoding_rows_in_one_captured_step(sampling, sizes):
    """Chunks that sample nothing, rows that go on with a pending token, and prompts, all padded."""
    first, second, third = prompt(5, 4), prompt(40, 5), prompt(9, 6)
    outcomes = []
    for platform in (OnDevice(sizes), OnDevice(Sizes(single=()))):
        runner, seen = started(platform, dtype="float32"), []
        steps = [
            ([(1, first, 0)], [(1, first)]),
            ([(3, second[:17], 0), (1, [PENDING], 5)], [(3, second)]),
            ([(3, second[17:39], 17), (1, [PENDING], 6), (2, third, 0)], [(2, third)]),
            ([(3, second[39:], 39), (1, [PENDING], 7), (2, [PENDING], 9)], []),
            ([(3, [PENDING], 40), (1, [PENDING], 8), (2, [PENDING], 10)], []),
        ]
        for parts, admitted in steps:
            made = batch(parts, [admit(row, ids, sampling) for row, ids in admitted])
            if parts[0][1] in (second[:17], second[17:39]):
                samples = made.rows != 3
                made = replace(made, logits_at=made.logits_at[samples], targets=made.targets[samples])
            result = run(runner, made)
            seen.append(dict(zip(result.rows.tolist(), result.token_ids.tolist(), strict=True)))
        outcomes.append(seen)
        assert 3 not in seen[1] and 3 not in seen[2] and 3 in seen[3]
    assert outcomes[0] == outcomes[1]


def test_rows_of_one_token_are_told_apart_from_prompts():
    """Attention plans for them by themselves, padding included."""
    platform = OnDevice(APART)
    runner = started(platform, dtype="float32")
    admitted = [admit(row, prompt(5, row)) for row in range(4)]
    run(runner, batch([(row, prompt(5, row), 0) for row in range(2)], admitted[:2]))
    run(runner, batch([(0, [PENDING], 5), (1, [PENDING], 5), (2, prompt(9), 0)], admitted[2:3]))
    run(runner, batch([(0, [PENDING], 6), (1, [PENDING], 6), (2, [PENDING], 9), (3, prompt(20), 0)], admitted[3:]))
    tokens, rows = (16, 33), (3, 3)
    assert set(platform.steps.buckets) >= {
        Shape(3 + count, 3 + each, 3, True) for count, each in zip(tokens, rows, strict=True)
    }
    made = widened(batch([(2, [7], 3), (0, prompt(9), 0)]), 3, ROWS)
    assert made.num_single == 3 and made.num_rows == 4 and made.num_tokens == 12
    assert made.query_start.tolist() == [0, 1, 2, 3, 12]
    assert made.rows.tolist() == [2, ROWS, ROWS, 0]
    assert made.logits_at.tolist() == [0, 11]
    assert not made.block_tables[0][1:3].any() and made.seq_lens[1:3].tolist() == [1, 1]


def test_shapes_share_what_they_read_and_leave():
    """Where each token's logits are, no graph keeps any: of all that is left, only tokens are a shape's own."""
    platform = Captured(Sizes(single=(1, 3, ROWS)))
    runner = started(platform, dtype="float32")
    left = []
    for rows, sampling in ((ROWS, GREEDY), (2, GREEDY), (2, RowSampling(seed=1))):
        admitted = [admit(row, prompt(5, row), sampling) for row in range(rows)]
        run(runner, batch([(row, prompt(5, row), 0) for row in range(rows)], admitted, tuple(range(ROWS))))
        made = batch([(row, [PENDING], 5) for row in range(rows)])
        with torch.inference_mode():
            left.append(platform.steps(made, sampling is GREEDY))
    assert len(platform.steps.buckets) == 4
    assert all(computed.logits is None for computed in left)
    assert [computed.chosen is None for computed in left] == [False, False, True]
    assert len({computed.selected.data_ptr() for computed in left}) == 1
    assert len({computed.inputs.token_ids.data_ptr() for computed in left}) == 1
    assert len({computed.inputs.groups[0].block_table.data_ptr() for computed in left}) == 1
    others = platform.steps.others(lambda step: step, Sizes(single=(3,)))
    with torch.inference_mode():
        assert others(made, False).selected.data_ptr() == left[0].selected.data_ptr()


@pytest.mark.parametrize("rows", [1, 3])
def test_masks_count_in_a_step_that_has_taken_highest_logits(rows):
    """Whether a step's tokens are masked is known only when it is under way."""
    allowed = 7
    tokens = []
    for platform in (Captured(Sizes(single=(1, 4))), ReferencePlatform()):
        runner = started(platform, dtype="float32")
        prompts = [prompt(5 + row, row) for row in range(rows)]
        admitted = [admit(row, prompts[row]) for row in range(rows)]
        run(runner, batch([(row, prompts[row], 0) for row in range(rows)], admitted))
        bits = np.zeros((1, -(-CONFIG["vocab_size"] // 32)), np.int32)
        bits[0, 0] = 1 << allowed
        masks = Late(Masks(np.array([rows - 1], np.int32), bits))
        for later in range(3):
            step = runner.submit(batch([(row, [PENDING], len(prompts[row]) + later) for row in range(rows)]))
            tokens.append(step.finish(masks).result().token_ids.tolist())
    assert tokens[:3] == tokens[3:]
    assert {found[-1] for found in tokens} == {allowed}


def test_which_steps_are_captured():
    platform = OnDevice(MIXED)
    runner = started(platform, dtype="float32")
    scoring = RowSampling(seed=0, temperature=0.0, prompt_logprobs=1)
    before = set(platform.steps.buckets)
    run(runner, batch([(0, prompt(9), 0)], [admit(0, prompt(9), scoring)], [], scored=[0]))
    run(runner, batch([(1, prompt(70), 0)], [admit(1, prompt(70))]))
    assert set(platform.steps.buckets) == before == {Shape(1, 1, 1, True)}
    run(
        runner,
        batch([(2, prompt(9), 0), (3, prompt(9), 0), (4, prompt(9), 0)], [admit(r, prompt(9)) for r in (2, 3, 4)]),
    )
    assert set(platform.steps.buckets) - before == {Shape(33, 7, 0, True)}
    with pytest.raises(AssertionError, match="also one of rows"):
        Sizes(single=(1,), tokens=(4,), rows=(4,))
