"""Where the time of a step goes on an NVIDIA GPU: kernels by name, and how long the GPU waits.

    python benchmarks/cuda_profile.py MODEL --rows 1 --context 128 [--prompt 8192] [--json out.json]

MODEL is a folder with a config.json; weights are random. Decoding steps of `rows` requests are timed, then traced; with
`--prompt`, steps that compute so long a prompt.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from anychip import LLM
from anychip.engine.batch import RowSampling
from anychip.engine.messages import Submit

WARM, TIMED, TRACED, REPLAYS = 24, 64, 16, 50
TOKENS = 1000, 30000
LINES = 24


class Steps:
    """Requests on an engine, stepped by hand."""

    def __init__(self, llm: LLM) -> None:
        self.engine = llm.engine
        self.random = np.random.default_rng(7)
        self.count = 0

    def submit(self, prompt: int, tokens: int) -> None:
        """One request with a random prompt."""
        ids = self.random.integers(*TOKENS, prompt).astype(np.int32)
        sampling = RowSampling(seed=0, temperature=0.0)
        message = Submit(
            handle=self.count, prompt=ids.tobytes(), sampling=sampling, max_tokens=tokens, stop_ids=(), eos_ids=()
        )
        self.engine.handle(message)
        self.count += 1

    def run(self, count: int) -> list[float]:
        """Seconds of each of some steps."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            self.engine.step()
            times.append(time.perf_counter() - begin)
        return times

    def drain(self) -> None:
        """Until nothing is left."""
        while self.engine.has_work:
            self.engine.step()


def decode(steps: Steps, rows: int, context: int) -> tuple[float, Any]:
    """Median seconds of a decoding step, and a trace of TRACED of them."""
    for _ in range(rows):
        steps.submit(context, WARM + TIMED + TRACED + 8 + context * rows // 4096)
    while steps.engine.scheduler.stats.waiting or steps.engine.scheduler.stats.scheduled_tokens != rows:
        steps.engine.step()
    steps.run(WARM)
    times = steps.run(TIMED)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        steps.run(TRACED)
        torch.cuda.synchronize()
    steps.drain()
    return statistics.median(times), trace


def prefill(steps: Steps, prompt: int) -> tuple[float, Any]:
    """Seconds to the first token, and a trace of one such prompt."""
    times = []
    for _ in range(4):
        steps.submit(prompt, 1)
        begin = time.perf_counter()
        steps.drain()
        times.append(time.perf_counter() - begin)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        steps.submit(prompt, 1)
        steps.drain()
        torch.cuda.synchronize()
    return statistics.median(times[1:]), trace


def host(steps: Steps, context: int) -> None:
    """Print the functions of the host that a decoding step of one row and a prompt of 1,000 tokens spend most in."""
    steps.submit(context, WARM + 2 * TIMED)
    steps.run(WARM)
    for what, run in (("decode", lambda: steps.run(TIMED)), ("prompt", lambda: first_token(steps))):
        with cProfile.Profile() as found:
            run()
        steps.drain()
        text = io.StringIO()
        pstats.Stats(found, stream=text).sort_stats("tottime").print_stats(28)
        print(f"host, {what}:", *[line for line in text.getvalue().splitlines() if "/" in line], sep="\n")


def first_token(steps: Steps) -> None:
    """A prompt of 1,000 tokens; the last one of as many warmed it up."""
    steps.submit(1000, 1)
    steps.drain()


def replayed(steps: Steps, rows: int) -> float:
    """Microseconds of the GPU alone for a captured step of some rows."""
    buckets = steps.engine.runner._run.captured.buckets
    shape = min((each for each in buckets if each.single == each.rows >= rows), key=lambda each: each.rows)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        buckets[shape]._replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / REPLAYS


def kernels(trace: Any, steps: int) -> dict[str, Any]:
    """Microseconds a step by kernel, their sum, and the span from the first to the last."""
    events = [event for event in trace.events() if event.device_type == DeviceType.CUDA]
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in events:
        spent[event.name] += event.time_range.elapsed_us()
        calls[event.name] += 1
    first = min(event.time_range.start for event in events)
    last = max(event.time_range.end for event in events)
    rows = [[name[:90], calls[name] / steps, time / steps] for name, time in spent.most_common()]
    return {"busy_us": sum(spent.values()) / steps, "span_us": (last - first) / steps, "kernels": rows}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, nargs="*", default=[1])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--prompt", type=int, nargs="*", default=[])
    parser.add_argument("--host", action="store_true", help="also list where the host's time goes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begin = time.perf_counter()
    llm = LLM(model=options.model, device="cuda", load_format="dummy", skip_tokenizer_init=True, max_model_len=16384)
    print(f"ready after {time.perf_counter() - begin:.1f} s: {llm.engine.info.notes}", flush=True)
    steps, report = Steps(llm), {}
    if options.host:
        host(steps, options.context)
    jobs = [(f"decode {rows} at {options.context}", decode, (rows, options.context), TRACED) for rows in options.rows]
    jobs += [(f"prefill {prompt}", prefill, (prompt,), 1) for prompt in options.prompt]
    for name, job, arguments, count in jobs:
        median, trace = job(steps, *arguments)
        found = kernels(trace, count)
        report[name] = {"wall_us": median * 1e6, **found}
        if job is decode:
            report[name]["gpu_us"] = replayed(steps, arguments[0])
            print(f"{name}: replayed alone {report[name]['gpu_us']:.0f} us")
        print(f"{name}: wall {median * 1e6:.0f} us, busy {found['busy_us']:.0f}, span {found['span_us']:.0f}")
        for kernel, calls, spent in found["kernels"][:LINES]:
            print(f"    {spent:9.1f} us {calls:7.1f} x  {kernel}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    llm.close()


if __name__ == "__main__":
    main()
