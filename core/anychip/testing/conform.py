"""`anychip conform`: the kit without pytest, as lines of a table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from anychip.errors import UserError
from anychip.progress import PartProgress
from anychip.testing.check import Check, Result, parts_of, run_check
from anychip.testing.checks import CHECKS
from anychip.testing.record import Recorder
from anychip.testing.subject import STEPS, Subject
from anychip.testing.workers import RefusedError, Workers

Mode = Literal["test", "perf", "support"]
Write = Callable[[str], None]
ROOM = 2 << 30
"""Bytes of memory, on the host and on the device, for each process."""


def run(
    name: str,
    mode: Mode,
    write: Write,
    levels: tuple[int, ...] = (),
    steps: int = STEPS,
    runtime: str | None = None,
    recorder: Recorder | None = None,
    jobs: int | None = None,
) -> int:
    """Examine the platform of a device name; the exit status, 1 if a check failed.

    `levels` limits the checks, `steps` is the length of the random run, `jobs` the number of processes: None takes one
    a processor, as far as memory allows. Raises `UserError` for an unknown device.
    """
    if recorder is not None and mode == "perf":
        raise UserError("Timings are not part of a record.", "Leave out --record, or run test or support.")
    with Subject(name, steps, runtime) as subject:
        write(f"{name}: {subject.chosen.found.plugin} {subject.chosen.found.version}")
        _ = subject.platform  # opened before anything is said about it
        if recorder is not None:
            recorder.open(subject)
        if mode == "support":
            return _show_support(subject, write)
        if mode == "perf":
            return _show_timings(subject, write)
        checks = [check for check in CHECKS if not levels or check.level in levels]
        results = []
        for result in examined(subject, checks, jobs, write):
            results.append(result)
            write(line(result))
        if recorder is not None:
            recorder.add(results)
    counts = Counter(result.status for result in results)
    write(
        ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda item: item[0] != "passed"))
    )
    return 1 if counts["failed"] else 0


def default_jobs(subject: Subject) -> int:
    """A process for each processor that this one may use, as far as there is memory for them on host and device."""
    from anychip.runner.host_memory import host_memory

    free = min(subject.platform.memory().free, host_memory().free)
    return max(1, min(len(os.sched_getaffinity(0)), free // ROOM)) if subject.computes else 1


def examined(subject: Subject, checks: Sequence[Check], jobs: int | None, write: Write) -> Iterator[Result]:
    """Results in the order of the checks."""
    homes = {part.home for check in checks for part in parts_of(check, subject)}
    left, most = list(checks), min(jobs or default_jobs(subject), len(homes))
    try:
        for result in _in_processes(subject, checks, most) if most > 1 else ():
            left.pop(0)
            yield result
    except RefusedError as error:
        if jobs is not None:
            raise
        write(f"{subject.device}: one check after another. {error.message}")
    yield from (run_check(check, subject) for check in left)


def _in_processes(subject: Subject, checks: Sequence[Check], jobs: int) -> Iterator[Result]:
    """Those of level 0 look at the device's memory, so nothing runs beside them."""
    threads = max(2, len(os.sched_getaffinity(0)) // jobs)
    with PartProgress() as progress, Workers(subject, jobs, threads, progress) as workers:
        for alone, most in ((True, 1), (False, jobs)):
            for result in workers.results([check for check in checks if (check.level == 0) == alone], most):
                with progress.hidden():
                    yield result


def line(result: Result) -> str:
    """One result; a failure's further lines are indented below it."""
    first, *rest = result.remark.splitlines() or [""]
    return "\n".join(
        [f"{result.check.label:<46} {result.status:<15} {first}".rstrip(), *(f"    {more}" for more in rest)]
    )


def _show_support(subject: Subject, write: Write) -> int:
    from anychip.testing.support import support

    for op, cell in support(subject).items():
        write(f"{op:<24} {cell}")
    return 0


def _show_timings(subject: Subject, write: Write) -> int:
    from anychip.testing.perf import timings

    write(f"{'op':<24} {'dtype':<10} {'here µs':>9} {'reference µs':>13}  case")
    for timing in timings(subject):
        write(f"{timing.op:<24} {timing.dtype:<10} {timing.bound:9.1f} {timing.reference:13.1f}  {timing.case}")
    return 0
