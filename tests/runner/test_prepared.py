"""What is captured before anybody asks for it."""

import itertools

import numpy as np
import pytest
from tests.runner.capturing import APART, OnDevice
from tests.runner.driver import continuation, prompt, started

from anychip.plugin.contract import KVPlan, Memory
from anychip.reference.platform import ReferencePlatform
from anychip.runner.bucket import Shape
from anychip.runner.prepared import likely_batches, likely_lengths


class Roomy(OnDevice):
    """Says how much memory is free."""

    free = 1 << 30

    def memory(self):
        return Memory(self.free, 1 << 30)


def test_likely_shapes_are_captured_before_anybody_asks():
    """One at a time, and what they then run is what it would have been."""
    prepared, plain = Roomy(APART), Roomy(APART)
    runners = [started(platform, dtype="float32") for platform in (prepared, plain)]
    counts = [len(prepared.steps.buckets)]
    while runners[0].prepare():
        counts.append(len(prepared.steps.buckets))
    assert counts == list(range(counts[0], counts[0] + len(counts)))
    assert not runners[0].prepare()
    known = set(prepared.steps.buckets)
    assert known >= {Shape(rows, rows, rows, greedy) for rows in (1, 4) for greedy in (False, True)}
    ids = prompt(40, 5)
    first, second = (continuation(runner, 2, ids, 4) for runner in runners)
    assert first == second
    assert set(plain.steps.buckets) <= known == set(prepared.steps.buckets)


def test_scarce_memory_is_left_to_those_who_ask():
    platform = Roomy(APART)
    runner = started(platform, dtype="float32")
    assert runner.prepare()
    platform.free = platform.memory().total // 100
    assert not runner.prepare()


def test_a_platform_that_captures_nothing_has_nothing_to_prepare():
    assert not started(ReferencePlatform(), dtype="float32").prepare()


@pytest.mark.parametrize(("rows", "tokens", "length"), [(1, 64, 32), (2, 64, 128), (300, 8192, 4096)])
def test_likely_steps_fit_the_plan(rows, tokens, length):
    plan = KVPlan((), 16, rows, length, tokens)
    likely = list(likely_lengths(plan))
    assert likely[0] == [1]
    assert max(map(len, likely)) == rows
    assert all(sum(lengths) <= tokens and max(lengths) <= length for lengths in likely)
    batches = [made for made, _ in itertools.islice(likely_batches(plan), 40)]
    assert [made.query_start[1:].tolist() for made in batches[::2]] == [
        np.cumsum(lengths).tolist() for lengths in likely[: len(batches[::2])]
    ]
