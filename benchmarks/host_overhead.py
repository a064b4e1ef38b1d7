"""Time of a step outside the device: the engine on the null platform, at several numbers of requests and contexts.

`python benchmarks/host_overhead.py [--json FILE] [--profile REQUESTS]` prints a table. A step is one turn of the
engine's loop: schedule, submit, commit. The null platform's own share is measured and taken off.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import platform
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anychip.config import make_config
from anychip.engine.batch import Batch, RowSampling, StepResult
from anychip.engine.engine import Engine
from anychip.engine.messages import Submit
from anychip.plugin.contract import Late, Pending, Step

REQUESTS = (1, 16, 64, 256)
CONTEXTS = (128, 1024, 4096)
STEPS = 400
WARM_UP = 50
BLOCK_SIZE = 16
GOAL = 150.0
"""Microseconds a step at 256 requests."""


class Clock:
    """Adds up the time spent in the device's own calls."""

    def __init__(self) -> None:
        self.seconds = 0.0


class TimedStep(Step):
    """A step whose `finish` and `result` are the device's time."""

    def __init__(self, step: Step, clock: Clock) -> None:
        self._step, self._clock = step, clock

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """See `Step.finish`."""
        begin = time.perf_counter()
        pending = self._step.finish(late)
        self._clock.seconds += time.perf_counter() - begin
        return pending


def engine_for(requests: int, context: int, folder: Path) -> Engine:
    """An engine with room for all requests at their full length."""
    length = context + STEPS + WARM_UP
    config = {"model_type": "llama", "max_position_embeddings": length, "vocab_size": 32000, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    options = {
        "model": str(folder),
        "device": "null",
        "load_format": "dummy",
        "max_num_seqs": requests,
        "max_num_batched_tokens": 8192,
        "steps_in_flight": 2,
        "block_size": BLOCK_SIZE,
        "kv_cache_memory_bytes": 2**30,
        "log_level": "error",
    }
    return Engine(make_config(options), lambda what, done, total: None)


def fill(engine: Engine, requests: int, context: int) -> None:
    """Run all requests' prompts, so that only decoding is left."""
    for handle in range(requests):
        length = context - handle % BLOCK_SIZE  # so that each step fills some rows' blocks, as in real use
        prompt = np.random.default_rng(handle).integers(2, 32000, length, dtype=np.int32)
        sampling = RowSampling(seed=handle, temperature=0.0)
        submit = Submit(handle=handle, prompt=prompt.tobytes(), sampling=sampling, max_tokens=STEPS + WARM_UP)
        engine.handle(submit)
    while engine.scheduler.stats.scheduled_tokens != requests or engine.scheduler.stats.waiting:
        engine.step()


def measure(requests: int, context: int) -> dict[str, Any]:
    """A step's microseconds outside the device: tenth percentile, which other programs disturb least, median, 99th."""
    with tempfile.TemporaryDirectory() as name:
        engine = engine_for(requests, context, Path(name))
        fill(engine, requests, context)
        clock = Clock()
        submit = engine.runner.submit

        def timed(batch: Batch) -> Step:
            begin = time.perf_counter()
            step = submit(batch)
            clock.seconds += time.perf_counter() - begin
            return TimedStep(step, clock)

        engine.runner.submit = timed  # type: ignore[method-assign]
        times = [*_steps(engine, clock)][WARM_UP // 2 :]
        engine.close()
    return {
        "requests": requests,
        "context": context,
        "p10_us": round(statistics.quantiles(times, n=10)[0], 1),
        "median_us": round(statistics.median(times), 1),
        "p99_us": round(statistics.quantiles(times, n=100)[98], 1),
    }


def _steps(engine: Engine, clock: Clock) -> Iterator[float]:
    for _ in range(STEPS):
        clock.seconds, begin = 0.0, time.perf_counter()
        engine.step()
        yield (time.perf_counter() - begin - clock.seconds) * 1e6


def profile(requests: int) -> None:
    """Print where the time of a step goes."""
    with tempfile.TemporaryDirectory() as name:
        engine = engine_for(requests, CONTEXTS[1], Path(name))
        fill(engine, requests, CONTEXTS[1])
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(STEPS):
            engine.step()
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> int:
    """Measure all combinations; the status is 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--profile", type=int, metavar="REQUESTS", help="show where a step's time goes instead")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.profile)
        return 0
    print(f"{'requests':>8} {'context':>8} {'p10 µs':>8} {'median µs':>10} {'p99 µs':>8}")
    results = []
    for requests in REQUESTS:
        for context in CONTEXTS:
            result = measure(requests, context)
            results.append(result)
            times = f"{result['p10_us']:8} {result['median_us']:10} {result['p99_us']:8}"
            print(f"{requests:8} {context:8} {times}", flush=True)
    if arguments.json:
        machine = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
        arguments.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    worst = max(result["median_us"] for result in results if result["requests"] == max(REQUESTS))
    print(f"at {max(REQUESTS)} requests: {worst} µs a step, goal {GOAL:g}")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
