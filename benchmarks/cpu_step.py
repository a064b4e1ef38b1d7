"""A decoding step of the CPU platform: how long it takes, and how much of that is not native.

`python benchmarks/cpu_step.py MODEL [--rows 1 32] [--pairs 4] [--random] [--profile]` runs each number of rows as
programs and an operator at a time, in turn, and prints medians: the whole turn of the engine's loop, the native call in
it, and what is left for Python. `--profile` shows where that goes, `--random` samples at random.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
import torch

from anychip.config import calm_own_threads, make_config
from anychip.engine.batch import RowSampling
from anychip.engine.collect import Collected, Collector
from anychip.engine.engine import Engine
from anychip.engine.input import PreparedRequest
from anychip.engine.messages import Submit
from anychip.runner.inputs import RunBatch, uploading
from anychip.runner.torch_runner import TorchRunner
from anychip.sampling_params import SamplingParams
from anychip_cpu.native.program import NotedSteps, Program

STEPS = 40
"""Of one half of a pair."""
WARM_UP = 8
CONTEXT = 32


@dataclass(slots=True)
class Timed:
    """A program and how long its calls took."""

    program: Program
    seconds: list[float] = field(default_factory=list)

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run it."""
        begin = time.perf_counter()
        left = self.program(inputs)
        self.seconds.append(time.perf_counter() - begin)
        return left

    def bind(self, inputs: list[torch.Tensor], chosen: torch.Tensor) -> None:
        """See `Program.bind`."""
        self.program.bind(inputs, chosen)

    def run_bound(self) -> None:
        """Run it on what is bound."""
        begin = time.perf_counter()
        self.program.run_bound()
        self.seconds.append(time.perf_counter() - begin)


class Decoding:
    """An engine on which some rows decode, and a client that takes their tokens as an offline one does."""

    def __init__(self, model: str, rows: int, steps: int, random: bool) -> None:
        options = {"model": model, "device": "cpu", "max_num_seqs": max(rows, 2), "max_model_len": 2048}
        self.engine = Engine(make_config({**options, "log_level": "error"}), lambda what, done, total: None)
        self.collector = Collector()
        runner = self.engine.runner
        assert isinstance(runner, TorchRunner), "the CPU platform brings no runner of its own"
        self.runner = runner
        sampling = RowSampling(seed=1, temperature=0.8, top_p=0.95) if random else RowSampling(seed=1, temperature=0.0)
        for row in range(rows):
            prompt = np.random.default_rng(row).integers(1000, 30000, CONTEXT, dtype=np.int32)
            submit = Submit(handle=row, prompt=prompt.tobytes(), sampling=sampling, max_tokens=steps)
            prepared = PreparedRequest(None, prompt.tolist(), SamplingParams(), (submit,))
            self.collector.open(Collected(str(row), prepared, None))
            self.engine.handle(submit)
        while self.engine.scheduler.stats.scheduled_tokens != rows or self.engine.scheduler.stats.waiting:
            self.step()

    def step(self) -> float:
        """One turn of the loop; its seconds."""
        begin = time.perf_counter()
        for outputs in self.engine.step():
            for collected in self.collector.collect(outputs)[0]:
                collected.take()
        return time.perf_counter() - begin


def measure(model: str, rows: int, pairs: int, random: bool) -> None:
    """Print one line."""
    decoding = Decoding(model, rows, 2 * pairs * (STEPS + WARM_UP) + 20, random)
    steps = decoding.runner._run
    assert isinstance(steps, NotedSteps), "there is no native library"
    for _ in range(WARM_UP):
        decoding.step()
    timed = {kind: Timed(program) for kind, program in steps.programs.items() if program is not None}
    steps.programs.update(timed)  # type: ignore[arg-type]
    plain = uploading(steps.step, steps.send)
    times: dict[str, list[float]] = {"programs": [], "operators": []}
    for _ in range(pairs):
        for name, run in (("programs", steps), ("operators", plain)):
            times[name] += _run(decoding, run)
    native = statistics.median(second for each in timed.values() for second in each.seconds)
    decoding.engine.close()
    line = f"{rows:4} {native * 1e6:10.0f}"
    for seconds in times.values():
        median = statistics.median(seconds)
        line += f" {median * 1e6:10.0f} {(median - native) * 1e6:8.0f} {(1 - native / median) * 100:7.1f}%"
    print(line, flush=True)


def _run(decoding: Decoding, run: RunBatch) -> list[float]:
    decoding.runner._run, decoding.runner._again, decoding.runner._last_step = run, None, None
    return [decoding.step() for _ in range(STEPS + WARM_UP)][WARM_UP:]


def profile(model: str, rows: int, random: bool) -> None:
    """Print where the time of a step goes."""
    decoding = Decoding(model, rows, 500, random)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(200):
        decoding.step()
    profiler.disable()
    decoding.engine.close()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    calm_own_threads()
    if options.profile:
        profile(options.model, options.rows[0], options.random)
        return
    print(f"{'rows':>4} {'native µs':>10} {'program µs':>10} {'Python':>8} {'share':>8} {'operators':>10}", flush=True)
    for rows in options.rows:
        measure(options.model, rows, options.pairs, options.random)


if __name__ == "__main__":
    main()
