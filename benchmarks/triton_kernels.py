"""The Triton kernels on a real device: right against float64, and how fast, each variant inside a captured graph.

    python benchmarks/triton_kernels.py check [OP ..]       the kit's op checks, in bfloat16, float16 and float32
    python benchmarks/triton_kernels.py time  [PATTERN ..]  a table of the cases whose name holds a pattern
    python benchmarks/triton_kernels.py warm  [PATTERN ..]  compile those first, in parallel

Outputs are poisoned: torch.empty gives NaN. Weights and caches rotate through more memory than the L2 holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from triton_cases import Timed, cases
from triton_choices import choice_cases
from triton_device import check_one
from triton_logits import logit_cases

from anychip.ops.registry import OPS

REPEAT = 24
"""Calls in one captured graph."""


def measure(run: Callable[[int], object]) -> float:
    """Median microseconds of one call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(3):
            run(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(REPEAT):
            run(index)
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / REPEAT)
    return sorted(times)[len(times) // 2]


def report(case: Timed) -> dict[str, object]:
    """Check a case, then time it."""
    try:
        run, error = case.prepare()
        microseconds = measure(run)
    except Exception as problem:  # noqa: BLE001 (one variant that does not fit is a line of the table)
        return {"case": case.name, "error": f"{type(problem).__name__}: {problem}"[:200]}
    rate = case.amount / microseconds / 1e6
    return {"case": case.name, "us": round(microseconds, 2), case.unit: round(rate, 3), "error": error}


def chosen(patterns: list[str]) -> list[Timed]:
    """The cases whose name holds one of the patterns, or all."""
    return [
        case
        for case in (*cases(), *choice_cases(), *logit_cases())
        if not patterns or any(pattern in case.name for pattern in patterns)
    ]


def warm(patterns: list[str]) -> None:
    """Compile the cases in parallel."""
    workers = min(12, os.cpu_count() or 1)
    commands = [[sys.executable, __file__, "compile", str(index), str(workers), *patterns] for index in range(workers)]
    for process in [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]:
        process.wait()


def time_cases(patterns: list[str]) -> None:
    """A line a case, and all of them as JSON where OUT says."""
    results = []
    for case in chosen(patterns):
        results.append(report(case))
        print(json.dumps(results[-1]), flush=True)
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "kernels.json").write_text(json.dumps(results, indent=1))


def compile_cases(index: int, workers: int, patterns: list[str]) -> None:
    """One worker's share."""
    for case in chosen(patterns)[index::workers]:
        try:
            case.prepare()[0](0)
        except Exception as problem:  # noqa: BLE001 (told again when it is timed)
            print(case.name, problem)
    torch.cuda.synchronize()


def check(names: list[str]) -> None:
    """The kit's op checks through these kernels, one process an op."""
    if len(names) == 1:
        print(check_one(names[0]), flush=True)
        return
    commands = [[sys.executable, __file__, "check", name] for name in names or OPS]
    for process in [subprocess.Popen(command) for command in commands]:
        process.wait()


def main() -> None:
    """See the module's description."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # torch.empty then gives NaN
    order, *rest = sys.argv[1:]
    if order == "check":
        check(rest)
    elif order == "compile":
        compile_cases(int(rest[0]), int(rest[1]), rest[2:])
    elif order == "warm":
        warm(rest)
    else:
        torch.use_deterministic_algorithms(False)
        time_cases(rest)


if __name__ == "__main__":
    main()
