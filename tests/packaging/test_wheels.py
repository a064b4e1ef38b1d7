"""Release wheels pin each other and hold no path; a clone's metadata points at its own platforms."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import wheels
from anychip.plugin.extras import platform_extras
from sources import ROOT, listed


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working tree, so that building leaves nothing behind in it."""
    root = tmp_path_factory.mktemp("clone")
    for name in listed(ROOT):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((ROOT / name).read_bytes())
            (root / name).chmod((ROOT / name).stat().st_mode)
    return root


@pytest.fixture(scope="module")
def release(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ci/release.sh filled: source distributions, and wheels built from them."""
    folder = tmp_path_factory.mktemp("release")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    command = ["bash", str(clone / "ci/release.sh"), str(folder), "--no-isolation"]
    subprocess.run(command, check=True, env={"PATH": path}, capture_output=True)
    return folder


def wheel(folder: Path, distribution: str) -> Path:
    """The one wheel of a distribution."""
    (found,) = folder.glob(f"{distribution}-[0-9]*.whl")
    return found


def test_release_pins_versions_and_holds_no_path(release: Path) -> None:
    assert wheels.check(release) == []
    requirements = wheels.metadata(wheel(release, "anychip")).get_all("Requires-Dist", [])
    assert any(line.startswith("anychip-cpu==") for line in requirements)
    assert not any("file:" in line for line in requirements)


def test_release_wheels_hold_the_packages(release: Path) -> None:
    names = zipfile.ZipFile(wheel(release, "anychip")).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"anychip", "anychip_api"}
    assert "anychip/version.py" in names
    assert {"anychip_api/page/index.html", "anychip_api/page/style.css", "anychip_api/page/main.js"} <= set(names)
    cpu = zipfile.ZipFile(wheel(release, "anychip_cpu")).namelist()
    assert "anychip_cpu/__init__.py" in cpu
    assert any(name.endswith("licenses/LICENSE") for name in cpu)


def test_clone_takes_its_own_platform(clone: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(clone)]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"}, capture_output=True)
    requirements = wheels.metadata(wheel(tmp_path, "anychip")).get_all("Requires-Dist", [])
    assert any(f"anychip-cpu @ {(clone / 'platforms/cpu').as_uri()}" in line for line in requirements)
    assert wheels.check(tmp_path) != []


def test_release_source_distributions_pin_too(release: Path) -> None:
    archives = sorted(release.glob("*.tar.gz"))
    assert len(archives) == 1 + len(list(ROOT.glob("platforms/*/pyproject.toml")))
    for archive in archives:
        with tarfile.open(archive) as tar:
            (name,) = [name for name in tar.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO")]
            stream = tar.extractfile(name)
            assert stream
            assert b"file:" not in stream.read()


def test_release_says_which_extra_is_for_which_chip(release: Path, tmp_path: Path) -> None:
    """From a wheel that was built from a source distribution, as a stranger installs it."""
    zipfile.ZipFile(wheel(release, "anychip")).extractall(tmp_path)
    (metadata,) = tmp_path.glob("*.dist-info")
    device = tmp_path / "pci" / "0000:00:01.0"
    device.mkdir(parents=True)
    for name, value in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
        (device / name).write_text(value)
    first, *others = platform_extras(Distribution.at(metadata), tmp_path / "pci")
    assert (first.name, first.seen) == ("cuda", "an NVIDIA GPU (10de:2335)")
    folders = {path.parent.name for path in ROOT.glob("platforms/*/pyproject.toml")}
    assert {"cuda", *(extra.name for extra in others)} == folders
    assert not any(extra.seen for extra in others)
