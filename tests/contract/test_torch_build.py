"""What PyTorch was built for is known without importing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anychip.plugin.torch_build import built_for

REST = "debug = False\nhip: Optional[str] = '6.4'\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda: Optional[str] = '13.0'", True),
        ("cuda = None", False),
        ("cuda: Optional[str] = None", False),
        ("", False),
    ],
)
def test_the_version_file_says_it(tmp_path: Path, line: str, expected: bool) -> None:
    assert not built_for("cuda", tmp_path)
    (tmp_path / "version.py").write_text(f"{line}\n{REST}")
    assert built_for("cuda", tmp_path) == expected
    assert built_for("hip", tmp_path)
    assert not built_for("xpu", tmp_path)


def test_the_installed_one_has_an_answer() -> None:
    assert not built_for("a library that nobody has")
