"""The step loop of a device that compiles each shape, on a platform that only says that it does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.runner.compiling import Compiling
from tests.runner.driver import BLOCK, GREEDY, ROWS, admit, batch, continuation, prompt, run, started

from anychip.engine.batch import BlockCopy, Masks, RowSampling
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Late, Plane
from anychip.reference.platform import ReferencePlatform
from anychip.runner.compiled import Shape
from anychip.runner.compiler import CompiledWhileServingError
from anychip.runner.shapes import shapes_up_to

SPEC = KVSpec("full", (Plane("k", (2, 8), "float32"), Plane("v", (2, 8), "float32")))


@pytest.fixture(scope="module")
def pair():
    """The tiny model where each shape is compiled, and on the reference."""
    return [started(platform, dtype="float32") for platform in (Compiling(), ReferencePlatform())]


def _plan(seqs, tokens, length, block_size=16):
    return KVPlan((KVGroup(SPEC, (0,), 9),), block_size, seqs, length, tokens)


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        RowSampling(seed=3, temperature=0.9, top_p=0.8),
        RowSampling(seed=3, temperature=0.7, top_k=5, presence_penalty=1.0, logit_bias=((7, 2.0),)),
        RowSampling(seed=0, temperature=0.0, bad_words=((17,),), min_tokens=3, stop_token_ids=(53,)),
    ],
    ids=["greedy", "top_p", "top_k and penalties", "words and stops"],
)
def test_tokens_are_those_of_the_reference(pair, sampling):
    given, wanted = (continuation(runner, 1, prompt(19), 8, sampling) for runner in pair)
    assert given == wanted


def test_rows_of_all_lengths_come_together(pair):
    lengths = (30, 1, 7, 16)
    ids = [prompt(length + 1, seed=length) for length in lengths]
    results = []
    for runner in pair:
        run(runner, batch([], retired=tuple(range(ROWS))))
        rows = [admit(row, ids[row], RowSampling(seed=row, temperature=0.0, logprobs=4)) for row in range(4)]
        first = run(runner, batch([(row, ids[row][:-1], 0) for row in range(4)], rows))
        second = run(runner, batch([(row, ids[row][-1:], lengths[row]) for row in range(4)]))
        results.append((first, second))
    for given, wanted in zip(*results, strict=True):
        assert given.token_ids.tolist() == wanted.token_ids.tolist()
        np.testing.assert_allclose(given.logprobs.values, wanted.logprobs.values, atol=1e-4)


def test_prompt_tokens_are_scored(pair):
    ids, results = prompt(23, seed=5), []
    for runner in pair:
        sampling = RowSampling(seed=0, temperature=0.0, prompt_logprobs=3)
        results.append(run(runner, batch([(2, ids, 0)], [admit(2, ids, sampling)], (2,), scored=(0,))).prompt_logprobs)
    given, wanted = results
    assert given.positions.tolist() == wanted.positions.tolist()
    np.testing.assert_allclose(given.logprobs.values, wanted.logprobs.values, atol=1e-4)


def test_masks_hold_though_the_device_has_chosen(pair):
    ids = prompt(9)
    step = pair[0].submit(batch([(3, ids, 0)], [admit(3, ids)], (3,)))
    bits = np.zeros((1, 4), np.int32)
    bits[0, 2] = 1 << 5
    assert step.finish(Late(Masks(np.array([3], np.int32), bits))).result().token_ids.tolist() == [69]


def test_blocks_are_copied(pair):
    runner = pair[0]
    ids = prompt(BLOCK + 3, seed=9)
    expected = run(runner, batch([(0, ids, 0)], [admit(0, ids)], (0,))).token_ids
    tables = np.arange(1, ROWS * 8 + 1, dtype=np.int32).reshape(ROWS, 8)
    tables[1, 0] = 40
    made = batch([(1, ids[BLOCK:], BLOCK)], [admit(1, ids)], (1,), copies=[BlockCopy(0, 1, 40)], tables=tables)
    assert run(runner, made).token_ids.tolist() == expected.tolist()
    assert torch.equal(runner._caches[0].k[40], runner._caches[0].k[1])


def test_every_shape_is_compiled_ahead_and_none_while_serving():
    platform = Compiling()
    runner, told = started(platform, dtype="float32"), []
    made = platform.compiler.compilations()
    assert made <= len(shapes_up_to(_plan(ROWS, 64, 128))) + 3  # the worst step, scoring, copies
    for rows in range(1, ROWS + 1):
        for length in (1, 2, 9, 64 // rows):
            parts = [(row, prompt(length), 0) for row in range(rows)]
            run(runner, batch(parts, [admit(row, ids) for row, ids, _ in parts], tuple(range(ROWS))))
    assert platform.compiler.compilations() == made
    runner._progress = lambda what, done, total: told.append((done, total))
    runner._warm_up()
    assert told == [(done, told[0][1]) for done in range(told[0][1] + 1)]


def test_a_compilation_while_serving_is_an_error():
    platform = Compiling()
    runner = started(platform, dtype="float32")
    run(runner, batch([(0, prompt(4), 0)], [admit(0, prompt(4))]))
    runner._steps._programs.clear()  # as if they had not been compiled
    with pytest.raises(CompiledWhileServingError, match="4 tokens in 1 rows"):
        runner.submit(batch([(0, prompt(4), 0)], [admit(0, prompt(4))], (0,)))


@pytest.mark.parametrize(
    "plan", [_plan(1, 8, 16), _plan(6, 64, 128), _plan(100, 100, 5000), _plan(256, 2048, 9000, 32)]
)
def test_each_step_has_a_shape_and_they_are_few(plan):
    shapes = shapes_up_to(plan)
    assert len(shapes) == len(set(shapes)) <= 80
    random = np.random.default_rng(1)
    for _ in range(200):
        rows = int(random.integers(1, plan.max_num_seqs + 1))
        most = max(1, min(plan.max_num_batched_tokens // rows, plan.max_model_len))
        lengths = sorted(random.integers(1, most + 1, rows)) if random.random() < 0.7 else [1] * rows
        if sum(lengths) > plan.max_num_batched_tokens:
            continue
        made = replace(
            batch([]),
            token_ids=np.zeros(sum(lengths), np.int32),
            rows=np.arange(rows, dtype=np.int32),
            num_single=int((np.array(lengths) == 1).sum()),
        )
        blocks = int(random.integers(1, -(-plan.max_model_len // plan.block_size) + 1))
        assert any(shape.holds(made, blocks) for shape in shapes), (lengths, blocks)


def test_a_step_with_several_tokens_a_row_leaves_a_row_for_padding():
    made = batch([(0, prompt(3), 0), (1, prompt(3), 0)])
    assert Shape(16, 3, 8).holds(made, 1) and not Shape(16, 2, 8).holds(made, 1)
    assert not Shape(8, 8, 8).holds(made, 1)
