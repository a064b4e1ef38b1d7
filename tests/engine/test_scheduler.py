"""One property of the scheduler each."""

from itertools import pairwise

import numpy as np
import pytest
from tests.engine.harness import Harness, alone
from tests.engine.plans import make_plan, submit

from anychip.engine.batch import PENDING, SAMPLE, RowSampling
from anychip.engine.scheduler import Policy, Scheduler

SCORES = RowSampling(seed=0, prompt_logprobs=1)


def _finish(harness):
    harness.drain()
    for handle in harness.sequences:
        harness.check(handle)


def test_a_shared_prompt_is_computed_once():
    harness = Harness(make_plan(400, max_num_seqs=16, max_model_len=80, budget=32), depth=2)
    prompt = [index % 5 for index in range(64)]
    harness.add(*(submit(handle, [*prompt, handle], max_tokens=1) for handle in range(16)))
    _finish(harness)
    assert harness.device.computed == len(prompt) + 16


def test_a_shared_prompt_whose_first_request_is_aborted_goes_on_with_the_next():
    harness = Harness(make_plan(400, max_num_seqs=16, max_model_len=80, budget=8), depth=2)
    harness.add(*(submit(handle, [1, 2] * 16, max_tokens=2) for handle in range(4)))
    harness.tick()
    assert harness.batches[0].num_rows == 1
    harness.scheduler.abort([0])
    _finish(harness)
    assert [harness.sequences[handle].finished.reason for handle in range(4)] == ["abort", *["length"] * 3]


@pytest.mark.parametrize("length", [8, 9, 11, 12])
def test_a_prompt_that_is_cached_whole_computes_its_last_token(length):
    harness = Harness(make_plan(40))
    prompt = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5][:length]
    harness.add(submit(0, prompt))
    _finish(harness)
    harness.add(submit(1, prompt))
    batch = harness.tick()
    assert batch.num_tokens == length - (length - 1) // 4 * 4 >= 1
    _finish(harness)


def test_other_salts_share_nothing():
    harness = Harness(make_plan(40))
    harness.add(submit(0, [1] * 12))
    _finish(harness)
    harness.add(submit(1, [1] * 12, cache_salt="other", sampling=RowSampling(seed=5)))
    assert harness.tick().num_tokens == 12
    _finish(harness)


def test_resetting_the_cache_forgets_what_nobody_holds():
    harness = Harness(make_plan(40))
    harness.add(submit(0, [1] * 12))
    _finish(harness)
    harness.scheduler.reset_prefix_cache()
    harness.add(submit(1, [1] * 12))
    assert harness.tick().num_tokens == 12
    _finish(harness)


def test_chunks_of_a_long_prompt_fill_the_budget():
    harness = Harness(make_plan(40, budget=8), depth=1)
    harness.add(submit(0, [1] * 30, max_tokens=1))
    _finish(harness)
    assert [batch.num_tokens for batch in harness.batches] == [8, 8, 8, 6]
    assert [len(batch.logits_at) for batch in harness.batches] == [0, 0, 0, 1]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_long_prompt_never_starves_rows_that_decode(depth):
    harness = Harness(make_plan(80, budget=8), depth=depth)
    harness.add(*(submit(handle, [handle], max_tokens=30) for handle in range(3)))
    for _ in range(3):
        harness.tick()
    harness.add(submit(3, [1] * 60, max_tokens=1))
    for _ in range(8):
        batch = harness.tick()
        assert batch.rows[:3].tolist() == [0, 1, 2]
        assert batch.num_single >= 3
        assert batch.num_tokens == 8
    _finish(harness)


@pytest.mark.parametrize("depth", [1, 2])
def test_steady_decoding_submits_one_batch_again_until_something_changes(depth):
    harness = Harness(make_plan(80, budget=8), depth=depth)
    harness.add(*(submit(handle, [handle], max_tokens=30) for handle in range(3)))
    for _ in range(4):
        harness.tick()
    steps = [harness.tick() for _ in range(2 * harness.plan.block_size)]
    assert sum(one is other for one, other in pairwise(steps)) >= harness.plan.block_size
    harness.add(submit(3, [1], max_tokens=2))
    assert harness.tick() is not steps[-1]
    harness.scheduler.abort([1])
    _finish(harness)


def test_single_tokens_come_first():
    harness = Harness(make_plan(80))
    harness.add(submit(0, [1] * 5), submit(1, [2]))
    first = harness.tick()
    assert (first.rows.tolist(), first.num_single) == ([1, 0], 1)
    harness.add(submit(2, [3, 4]), submit(3, [3]))
    second = harness.tick()
    assert (second.rows.tolist(), second.num_single) == ([0, 1, 3, 2], 3)
    assert second.query_start.tolist() == [0, 1, 2, 3, 5]
    _finish(harness)


def test_rows_past_the_budget_wait_for_those_before_them():
    harness = Harness(make_plan(80, budget=2))
    harness.add(*(submit(handle, [handle], max_tokens=3) for handle in range(5)))
    _finish(harness)
    assert [batch.rows.tolist() for batch in harness.batches[:3]] == [[0, 1]] * 3


def test_one_step_ahead_is_pending_and_a_stop_in_flight_is_dropped():
    message = submit(0, [1, 2], max_tokens=8)
    stop = alone(message)[0][1]
    harness = Harness(make_plan(80), depth=2)
    harness.add(submit(0, [1, 2], max_tokens=8, stop_ids=(stop,)))
    harness.tick()
    assert harness.tick().token_ids.tolist() == [PENDING]
    _finish(harness)
    assert harness.sequences[0].tokens[-1] == stop
    assert len(harness.batches) == len(harness.sequences[0].tokens) + 1


def _preempted(depth):
    """A harness whose second request was preempted by the first."""
    harness = Harness(make_plan(9, max_model_len=32), Policy(prefix_caching=False), depth)
    harness.add(submit(0, [1] * 12, max_tokens=20), submit(1, [2] * 12, max_tokens=20))
    while harness.submit() and not harness.scheduler.stats.preemptions_total:
        if len(harness.under_way) >= depth:
            harness.commit()
    return harness


def test_a_preempted_request_keeps_its_pending_sample():
    harness = _preempted(depth=2)
    scheduler = harness.scheduler
    assert (scheduler.stats.running, scheduler.stats.waiting) == (1, 0), "it waits before its sample is there"
    while not scheduler.stats.waiting:
        harness.tick()
    (waiting,) = scheduler.waiting
    assert waiting.tokens[12:].tolist() == harness.sequences[1].tokens
    assert PENDING not in waiting.tokens
    _finish(harness)


def test_a_preempted_request_recomputes_all_it_owns():
    harness = _preempted(depth=1)
    owned = 12 + len(harness.sequences[1].tokens)
    ran = len(harness.batches)
    _finish(harness)
    (back,) = [batch for batch in harness.batches[ran:] if batch.admitted]
    assert back.positions.tolist() == list(range(owned))
    assert [one.output_token_ids for one in back.admitted] == [None], "no history unless it is needed"


def test_a_preempted_request_is_not_scored_twice():
    harness = Harness(make_plan(9, max_model_len=32), depth=2)
    harness.add(submit(0, [1] * 12, max_tokens=20), submit(1, [2] * 12, max_tokens=20, sampling=SCORES))
    _finish(harness)
    assert harness.scheduler.stats.preemptions_total
    scored = sum(int((batch.targets != SAMPLE).sum()) for batch in harness.batches)
    assert scored == 11


def test_a_preempted_request_brings_its_history_back():
    sampling = RowSampling(seed=0, presence_penalty=1.0)
    harness = Harness(make_plan(9, max_model_len=32), depth=2)
    harness.add(*(submit(handle, [handle] * 12, max_tokens=20, sampling=sampling) for handle in range(2)))
    _finish(harness)
    back = harness.batches[-1 - next(i for i, one in enumerate(reversed(harness.batches)) if one.admitted)].admitted[0]
    assert back.prompt_token_ids.tolist() == [1] * 12
    assert back.output_token_ids.tolist() == harness.sequences[1].tokens[: len(back.output_token_ids)] != []


def test_a_row_may_be_retired_and_admitted_in_one_batch():
    harness = Harness(make_plan(40, max_num_seqs=1))
    harness.add(submit(0, [1, 2], max_tokens=1), submit(1, [3, 4], max_tokens=1))
    harness.tick()
    batch = harness.tick()
    assert batch.retired == (0,)
    assert [one.row for one in batch.admitted] == [0]
    _finish(harness)


def test_a_finished_row_is_not_reused_while_a_step_names_it():
    harness = Harness(make_plan(40, max_num_seqs=1), depth=2)
    harness.add(submit(0, [1, 2], max_tokens=9), submit(1, [3, 4], max_tokens=1))
    harness.tick()
    harness.submit()
    harness.scheduler.abort([0])
    assert harness.submit() is None, "the row of a step under way was given away"
    _finish(harness)


def test_chunks_score_the_prompt_and_only_the_last_one_samples():
    harness = Harness(make_plan(40, budget=4))
    harness.add(submit(0, [5, 4, 3, 2, 1, 0, 6], max_tokens=1, sampling=SCORES))
    _finish(harness)
    chunks = [(batch.logits_at.tolist(), batch.targets.tolist()) for batch in harness.batches]
    assert chunks == [([0, 1, 2, 3], [4, 3, 2, 1]), ([0, 1, 2], [0, 6, SAMPLE])]


def test_a_sequence_without_output_computes_only_what_it_scores():
    harness = Harness(make_plan(40))
    harness.add(submit(0, [5, 4, 3], max_tokens=0, sampling=SCORES), submit(1, [5], max_tokens=0, sampling=SCORES))
    _finish(harness)
    (batch,) = harness.batches
    assert (batch.logits_at.tolist(), batch.targets.tolist()) == ([0, 1], [4, 3])


@pytest.mark.parametrize("depth", [1, 3])
def test_what_a_failed_row_computed_is_not_cached(depth):
    harness = Harness(make_plan(40), depth=depth, fails=lambda seed, step, row: step == 1)
    harness.add(submit(0, [1, 2] * 6))
    harness.drain()
    assert harness.sequences[0].finished.error == "it broke"
    harness.add(submit(1, [1, 2] * 6))
    assert harness.tick().num_tokens == 12
    harness.drain()
    harness.check(1)


def test_samples_dropped_after_the_end_are_not_cached():
    harness = Harness(make_plan(40, block_size=1), depth=3)
    harness.add(submit(0, [1, 2, 3], max_tokens=9, stop_ids=tuple(range(7))))
    _finish(harness)
    pool = harness.scheduler.cache.groups[0].pool
    assert len(pool.index) == 3


def test_the_lowest_priority_runs_first_only_under_that_policy():
    for by_priority, first in ((True, 1), (False, 0)):
        harness = Harness(make_plan(40, max_num_seqs=1), Policy(by_priority=by_priority))
        harness.add(submit(0, [1], priority=2), submit(1, [2], priority=-1))
        harness.tick()
        assert [one.message.handle for one in harness.sequences.values() if one.scheduled] == [first]
        _finish(harness)


def test_aborts_in_every_state_end_once():
    harness = _preempted(depth=2)
    harness.add(submit(2, [3], max_tokens=2))
    harness.scheduler.abort([1, 2, 1, 99])
    harness.scheduler.abort([1, 0])
    harness.drain()
    assert [one.finished.reason for one in harness.sequences.values()] == ["abort"] * 3


def test_lengths_that_do_not_fit_are_our_own_bug():
    scheduler = Scheduler(make_plan(40, max_model_len=8))
    with pytest.raises(AssertionError, match="bad length"):
        scheduler.add(submit(0, [1] * 5, max_tokens=4))
    with pytest.raises(AssertionError, match="bad length"):
        scheduler.add(submit(0, [], max_tokens=4))


def test_the_batch_is_made_of_int32():
    harness = Harness(make_plan(40, 30))
    harness.add(submit(0, [1, 2, 3], sampling=SCORES))
    batch = harness.tick()
    assert {array.dtype for array in (batch.logits_at, *batch.block_tables)} == {np.dtype(np.int32)}
    _finish(harness)
