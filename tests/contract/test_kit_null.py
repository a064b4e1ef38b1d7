"""The null platform: what it can have passes, and the rest is said to be not applicable rather than passed over."""

import pytest

from anychip.testing.check import run_check
from anychip.testing.checks import CHECKS
from anychip.testing.subject import Subject

COMPUTED = {
    "memory moves when allocating",
    "copies survive",
    "synchronize waits",
    "logits against the reference",
    "captured = eager",
    "smaller caches against whole ones",
    "lowered = original",
    "large steps: captured = eager",
    "encoder: ragged = alone = reference",
    "pooled in chunks = whole",
    *(f"sampling: {field}" for field in ("temperature", "top_k", "top_p", "min_p", "seed", "n")),
}
"""Checks that need something to be computed; all of levels 1 and 2 do."""


@pytest.fixture(scope="module")
def subject():
    with Subject("null") as subject:
        yield subject


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.label)
def test_each_check_passes_or_does_not_apply(check, subject):
    result = run_check(check, subject)
    applies = check.level not in (1, 2) and check.name not in COMPUTED
    assert result.status == ("passed" if applies else "not applicable"), result.remark
    assert applies or result.remark
