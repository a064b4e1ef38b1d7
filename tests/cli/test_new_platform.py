"""`anychip new-platform`: names it refuses, and what it writes over: nothing. The guide's test runs the package."""

import re
from pathlib import Path

import pytest
from tests.cli.command import run

from anychip.errors import UserError
from anychip.plugin.contract import API_VERSION
from anychip.scaffold.platform_package import PlatformPackage


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("MyChip", "names a package"),
        ("my-chip", "names a package"),
        ("2chip", "names a package"),
        ("x", "names a package"),
        ("../chip", "names a package"),
        ("chip\n", "names a package"),
        ("auto", "that word itself"),
        ("api", "that word itself"),
        ("null", "that word itself"),
        ("reference", "that word itself"),
        ("cpu", "there is a platform"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_what_can(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as error:
        PlatformPackage(name, tmp_path)
    assert "such as mychip" in error.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "anychip-mychip"
    there.mkdir()
    (there / "mine").write_text("kept")
    done = run("new-platform", "mychip", "--into", tmp_path)
    assert done.returncode == 2
    assert "exists already. Nothing was changed." in done.stderr
    assert [path.name for path in there.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Not a directory"):
        PlatformPackage("mychip", tmp_path / "file" / "below").write()


def test_every_placeholder_is_filled_in(tmp_path: Path) -> None:
    package = PlatformPackage("mychip", tmp_path / "new" / "folder")
    written = package.write()
    assert len(written) == 8
    texts = [(package.folder / path).read_text() for path in written]
    assert not [text for text in texts if re.search(r"@\w+@", text)]
    assert f"api_version={API_VERSION}" in (package.folder / "anychip_mychip" / "__init__.py").read_text()
