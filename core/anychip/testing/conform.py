"""`anychip conform`: the kit without pytest, as lines of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

from anychip.errors import UserError
from anychip.testing.check import Result, run_check
from anychip.testing.checks import CHECKS
from anychip.testing.record import Recorder
from anychip.testing.subject import STEPS, Subject

Mode = Literal["test", "perf", "support"]
Write = Callable[[str], None]


def run(
    name: str,
    mode: Mode,
    write: Write,
    levels: tuple[int, ...] = (),
    steps: int = STEPS,
    runtime: str | None = None,
    recorder: Recorder | None = None,
) -> int:
    """Examine the platform of a device name; the exit status, 1 if a check failed.

    `levels` limits the checks, `steps` is the length of the random run. Raises `UserError` for an unknown device.
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
        results = list(_tested(subject, write, levels))
        if recorder is not None:
            recorder.add(results)
    counts = Counter(result.status for result in results)
    write(
        ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda item: item[0] != "passed"))
    )
    return 1 if counts["failed"] else 0


def _tested(subject: Subject, write: Write, levels: tuple[int, ...]) -> list[Result]:
    results = []
    for check in CHECKS:
        if not levels or check.level in levels:
            results.append(run_check(check, subject))
            write(line(results[-1]))
    return results


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
