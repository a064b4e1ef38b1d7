"""What a check of the kit is, and what may come of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anychip.errors import UserError
from anychip.testing.subject import Subject

Status = Literal["passed", "failed", "not applicable"]


class CheckFailedError(AssertionError):
    """The platform is wrong; the message names op, case, error and tolerance."""


class NotApplicableError(Exception):
    """The platform cannot have what is checked; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing a platform must do. `run` raises, or returns a remark for the report."""

    level: int
    name: str
    run: Callable[[Subject], str]

    @property
    def label(self) -> str:
        """`L1 rms_norm`."""
        return f"L{self.level} {self.name}"


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
    """Run one check; an unexpected exception is a failure with its traceback."""
    try:
        return Result(check, "passed", check.run(subject))
    except NotApplicableError as reason:
        return Result(check, "not applicable", str(reason))
    except (CheckFailedError, UserError) as error:
        return Result(check, "failed", str(error))
    except Exception:  # noqa: BLE001 (reported as this check's failure)
        return Result(check, "failed", traceback.format_exc())
