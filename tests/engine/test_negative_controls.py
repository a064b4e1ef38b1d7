"""The checking device and the harness find the faults they are there for."""

import pytest
from tests.engine.harness import Harness
from tests.engine.plans import make_plan, submit

from anychip.cache.prefix import PrefixIndex, root_hash
from anychip.engine import request as requests
from anychip.engine.batch import RowSampling
from anychip.engine.scheduler import Scheduler


def _run(depth=3):
    """Much of everything: preemption, shared prefixes, two salts, aborts in flight."""
    harness = Harness(make_plan(13, max_model_len=40, budget=16), depth=depth)
    for handle in range(24):
        seed = handle % 5 == 0
        prompt = [1, 2, 1, 0] * (handle % 4) + [handle % 3] * 3
        sampling = RowSampling(seed=int(seed), logprobs=0)
        harness.add(submit(handle, prompt, max_tokens=6 + handle % 16, sampling=sampling))
        harness.tick()
        if handle % 7 == 6:
            harness.scheduler.abort([handle - 3])
    harness.drain()
    for handle in harness.sequences:
        harness.check(handle)
    assert harness.scheduler.stats.preemptions_total


def _release_at_once(monkeypatch):
    leave = Scheduler._leave

    def hasty(self, row, leaving):
        committed, self._committed_step = self._committed_step, self._report.steps
        leave(self, row, leaving)
        self._committed_step = committed

    monkeypatch.setattr(Scheduler, "_leave", hasty)


def _give_blocks_back_at_once(monkeypatch):
    leave = Scheduler._leave

    def hasty(self, row, leaving):
        leave(self, row, leaving)
        self.cache.release(row)

    monkeypatch.setattr(Scheduler, "_leave", hasty)


def _publish_before_commit(monkeypatch):
    schedule = Scheduler.schedule

    def hasty(self):
        scheduled = schedule(self)
        if scheduled:
            self.reuse.publish(scheduled[1].rows, scheduled[1].ends)
        return scheduled

    monkeypatch.setattr(Scheduler, "schedule", hasty)


def _keep_the_hash_of_a_taken_block(monkeypatch):
    monkeypatch.setattr(PrefixIndex, "forget", lambda self, block: None)


def _ignore_salts(monkeypatch):
    monkeypatch.setattr(requests, "root_hash", lambda salt: root_hash(""))


def _preempt_the_first(monkeypatch):
    preempt = Scheduler._preempt
    monkeypatch.setattr(Scheduler, "_preempt", lambda self, row: preempt(self, int(self._active[0])))


def _drop_a_pending_sample(monkeypatch):
    vacate = requests.Rows.vacate

    def forgetful(self, row):
        request = vacate(self, row)
        request.tokens = request.tokens[: max(request.prompt_length, len(request.tokens) - 1)]
        return request

    monkeypatch.setattr(requests.Rows, "vacate", forgetful)


def _never_release(monkeypatch):
    monkeypatch.setattr(Scheduler, "_release_left", lambda self, record: None)


def test_without_a_fault_all_is_well():
    for depth in (1, 2, 3):
        _run(depth)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (_release_at_once, "an empty row was asked"),
        (_give_blocks_back_at_once, "a block was reused while a step names it"),
        (_publish_before_commit, "a block was published while a step writes it"),
        (_keep_the_hash_of_a_taken_block, "a block does not hold this row's beginning"),
        (_ignore_salts, "a block does not hold this row's beginning"),
        (_preempt_the_first, "not the last one was preempted"),
        (_drop_a_pending_sample, "a position was scored twice"),
        (_never_release, "a row that left was never released"),
    ],
)
def test_each_fault_is_found(fault, found, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        _run()
