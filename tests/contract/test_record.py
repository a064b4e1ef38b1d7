"""Records of platforms: what the kit writes down, what it leaves, and what becomes of it in a table."""

import re

import pytest

from anychip.errors import UserError
from anychip.ops.registry import OPS
from anychip.testing.check import Check, Result
from anychip.testing.conform import run
from anychip.testing.record import CLAIMS, Claim, Record, Recorder, claims_table, read_record, write_record


def result(level, status):
    return Result(Check(level, "something", lambda subject: ""), status)


def test_the_kit_writes_what_it_has_seen_and_leaves_the_rest(tmp_path):
    """The null platform's level 0, in words as a person would give them; a compiler's claim stays."""
    path = tmp_path / "null.json"
    kept = Claim("compiled", "2020-01-02", "nothing at all")
    write_record(Record("null", {"kernels": kept, "L1 ops": kept, "L2 attention": kept}), path)
    assert run("null", "test", lambda text: None, levels=(0, 1), recorder=Recorder(path, "a host")) == 0
    record = read_record(path, "null")
    assert record.claim("kernels") == record.claim("L2 attention") == kept
    assert record.claim("L1 ops") == Claim("none"), "it has no ops"
    assert re.fullmatch(r"ran \d{4}-\d\d-\d\d", record.claim("L0 device").cell)
    assert record.claim("L0 device").on == "a host"
    assert record.claim("L4 serving") == Claim()
    assert record.ops == dict.fromkeys(OPS, "own runner")


def test_failures_are_counted_by_level():
    record = Record("chip")
    record.add([result(2, "passed"), result(2, "failed"), result(2, "failed"), result(3, "passed")], "2026-01-02", "it")
    assert record.claim("L2 attention").cell == "ran 2026-01-02, 2 failed"
    assert record.claim("L3 runner").cell == "ran 2026-01-02"
    record.add([result(2, "passed")], "2026-01-03", "it")
    assert record.claim("L2 attention").cell == "ran 2026-01-03"


def test_support_alone_is_recorded_and_timings_are_not(tmp_path):
    path = tmp_path / "new" / "null.json"
    assert run("null", "support", lambda text: None, recorder=Recorder(path, "")) == 0
    assert read_record(path, "null").claims == {}
    with pytest.raises(UserError, match="Timings are not part"):
        run("null", "perf", lambda text: None, recorder=Recorder(path, ""))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no record of a platform"),
        ('{"platform": "null", "claims": {"L0 device": {"state": "guessed"}}}', "guessed"),
        ('{"platform": "null", "speed": 3}', "speed"),
        ('{"platform": "another"}', "something else than 'null'"),
        ('{"platform": "null", "claims": {"L9 magic": {}}}', "something else"),
    ],
)
def test_another_file_is_not_written_over(tmp_path, text, says):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        run("null", "test", lambda text: None, levels=(0,), recorder=Recorder(path, ""))
    assert path.read_text() == text


def test_the_table_names_every_claim():
    record = Record(
        "chip",
        {"kernels": Claim("compiled", "2026-01-02", "a compiler"), "L1 ops": Claim("ran", "2026-01-02", "a chip")},
    )
    head, _, row = claims_table([record]).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["platform", *CLAIMS, "on"]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "`chip`",
        "compiled 2026-01-02",
        "untested",
        "ran 2026-01-02",
        *["untested"] * 3,
        "a compiler; a chip",
    ]
