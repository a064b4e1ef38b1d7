"""What a check of the kit is, the parts it falls into, and what may come of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

from anychip.errors import UserError
from anychip.testing.subject import Subject

Status = Literal["passed", "failed", "not applicable"]
MAX_REPORTED = 5
"""Problems of one check that are printed."""


class CheckFailedError(AssertionError):
    """The platform is wrong; each argument names op, case, error and tolerance."""


class NotApplicableError(Exception):
    """The platform cannot have what is checked; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a check that can run without the others."""

    home: str
    """Parts of one home share what they load or compile, so one process takes them, one after another."""
    run: Callable[[Subject], Any]
    """Raises, or returns what the check's `join` takes."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing a platform must do."""

    level: int
    name: str
    divide: Callable[[Subject], Sequence[Part]]
    """The same parts in every process that has the platform open; no work is done yet."""
    join: Callable[[Sequence[Any]], str] = "; ".join
    """A remark for the report, from what all parts returned."""

    @property
    def label(self) -> str:
        """`L1 rms_norm`."""
        return f"L{self.level} {self.name}"


def whole(level: int, name: str, run: Callable[[Subject], str], home: str = "") -> Check:
    """A check in one part, which has its own home unless it shares one."""
    part = Part(home or name, run)
    return Check(level, name, lambda subject: (part,))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one part."""

    status: Status
    value: Any = None
    """What it returned, if it passed."""
    problems: tuple[str, ...] = ()
    """Otherwise why not."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check."""

    check: Check
    status: Status
    remark: str = ""


def require(condition: bool, message: str) -> None:
    """Fail the check with `message` unless the condition holds."""
    if not condition:
        raise CheckFailedError(message)


def run_check(check: Check, subject: Subject) -> Result:
    """Run one check here, part by part."""
    return joined(check, [run_part(part, subject) for part in parts_of(check, subject)])


def parts_of(check: Check, subject: Subject) -> Sequence[Part]:
    """The parts of a check; where it cannot be divided, one that says why."""
    try:
        return check.divide(subject)
    except Exception as error:  # noqa: BLE001 (raised again when the part runs)
        return (Part(check.name, partial(_raise, error)),)


def run_part(part: Part, subject: Subject) -> Outcome:
    """Run one part; an unexpected exception is a failure with its traceback."""
    try:
        return Outcome("passed", part.run(subject))
    except NotApplicableError as reason:
        return Outcome("not applicable", problems=(str(reason),))
    except CheckFailedError as error:
        return Outcome("failed", problems=tuple(map(str, error.args)))
    except UserError as error:
        return Outcome("failed", problems=(str(error),))
    except Exception:  # noqa: BLE001 (reported as this check's failure)
        return Outcome("failed", problems=(traceback.format_exc(),))


def joined(check: Check, outcomes: Sequence[Outcome]) -> Result:
    """The result of a check from those of its parts: one that failed fails it."""
    failed = [outcome.problems for outcome in outcomes if outcome.status == "failed"]
    problems = list(dict.fromkeys(chain.from_iterable(failed)))
    if problems:
        more = [f"and {len(problems) - MAX_REPORTED} more"] if len(problems) > MAX_REPORTED else []
        return Result(check, "failed", "\n".join([*problems[:MAX_REPORTED], *more]))
    values = [outcome.value for outcome in outcomes if outcome.status == "passed"]
    if not values:
        return Result(check, "not applicable", "; ".join(dict.fromkeys(outcome.problems[0] for outcome in outcomes)))
    return Result(check, "passed", check.join(values))


def _raise(error: Exception, subject: Subject) -> None:
    raise error
