"""On real kernels: whatever comes, goes and shares steps, each sequence gets what it gets alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.engine.crowd import Crowd, compare, engine, likeliest, play

from anychip.engine.steady import Steady
from anychip.testing.tiny_model import VOCAB_SIZE, write_tiny_model

BLOCKS = 9
"""One sequence takes up to six, so that some are preempted."""
TIED = 0.5
"""Log-probabilities in bfloat16 that are all but equal."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def alone(model: str) -> Iterator[Crowd]:
    crowd = Crowd(engine(model, "reference", max_num_seqs=1, enable_prefix_caching=False))
    yield crowd
    crowd.engine.close()


def crowded(model: str, device: str, seed: int, dtype: str = "float32", **options: str) -> Crowd:
    """A crowd that has come and gone, on an engine with too little memory for all."""
    block_bytes = 16 * 2 * 2 * 2 * 64 * (4 if dtype == "float32" else 2)
    few = engine(model, device, dtype=dtype, kv_cache_memory_bytes=BLOCKS * block_bytes, **options)
    crowd = Crowd(few)
    play(crowd, Random(seed), 14, VOCAB_SIZE)
    few.close()
    assert few.scheduler.stats.preemptions_total > 0, "the test says less than it could"
    assert crowd.repeated > 50, "hardly a batch came again"
    return crowd


def compare_all(crowd: Crowd, alone: Crowd) -> None:
    for got in crowd.all.values():
        compare(got, alone.run(got.message))


@pytest.mark.parametrize(
    ("device", "seed", "policy"),
    [("reference", 12, "fcfs"), ("cpu", 13, "fcfs"), ("cpu", 7, "fcfs"), ("cpu", 10, "priority")],
)
def test_every_sequence_gets_what_it_gets_alone(model: str, alone: Crowd, device: str, seed: int, policy: str) -> None:
    compare_all(crowded(model, device, seed, scheduling_policy=policy), alone)


@pytest.mark.parametrize("seed", [8, 12, 13])
def test_native_steps_that_come_again_take_the_likeliest_tokens(model: str, alone: Crowd, seed: int) -> None:
    plain = [got for got in crowded(model, "cpu", seed, "bfloat16").all.values() if got.plain and got.tokens]
    assert len(plain) > 5
    for got in plain:
        assert likeliest(alone, got) < TIED, got.message


def test_a_batch_that_comes_again_with_stale_positions_is_seen(
    model: str, alone: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Steady.advance

    def late(self: Steady) -> bool:
        goes_on = advance(self)
        if self._taken == 3:
            self.batch.positions[:] -= 1
        return goes_on

    monkeypatch.setattr(Steady, "advance", late)
    crowd = crowded(model, "cpu", 13)
    with pytest.raises(AssertionError):
        compare_all(crowd, alone)
