"""Recorded results are told from outdated ones."""

import pytest

from recorded import fingerprint, problem


def test_a_record_is_outdated_by_any_source_it_covers(tmp_path):
    (tmp_path / "a.py").write_text("1")
    record = {"covers": ["*.py"], "sources": fingerprint(["*.py"], tmp_path)}
    assert problem(record, "slow", tmp_path) == ""
    for change in ("2", None):
        (tmp_path / "a.py").write_text(change) if change else (tmp_path / "b.py").touch()
        assert "older than the sources it covers: ci/lane_slow.sh record" in problem(record, "slow", tmp_path)
        (tmp_path / "a.py").write_text("1")


def test_a_pattern_without_files_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="no file matches gone"):
        fingerprint(["gone/*.py"], tmp_path)
