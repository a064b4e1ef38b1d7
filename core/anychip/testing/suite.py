"""The kit for pytest: a subclass with a device name is a platform's whole test."""

from __future__ import annotations

from typing import ClassVar

import pytest

from anychip.testing.check import Check, run_check
from anychip.testing.checks import CHECKS
from anychip.testing.subject import STEPS, Subject


class PlatformSuite:
    """Every check of the kit as a test.

    >>> class TestMine(PlatformSuite):
    ...     platform = "mine"
    """

    platform: ClassVar[str]
    """The device, as `--device` takes it."""
    steps: ClassVar[int] = STEPS
    """Length of the random run on level 3."""

    _subject: ClassVar[Subject]

    @classmethod
    def setup_class(cls) -> None:
        """Make room for the device, which is opened once for all checks."""
        cls._subject = Subject(cls.platform, cls.steps)

    @classmethod
    def teardown_class(cls) -> None:
        """Close what the checks opened."""
        cls._subject.close()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.label)
    def test_conformance(self, check: Check) -> None:
        """One check; what this platform cannot have is skipped with its reason."""
        result = run_check(check, self._subject)
        if result.status == "not applicable":
            pytest.skip(result.remark)
        assert result.status == "passed", f"{check.label}: {result.remark}"
