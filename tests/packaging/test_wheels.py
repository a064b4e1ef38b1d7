"""Release wheels pin each other and hold no path; a clone's point at its own platforms, and kernels come along."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import wheels
from anychip.plugin.extras import platform_extras
from anychip_cpu.native.build import installed_torch
from anychip_cpu.native.variants import VARIANTS, supported_variants
from sources import ROOT, listed


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working tree, so that building leaves nothing behind in it."""
    root = tmp_path_factory.mktemp("clone")
    for name in listed(ROOT):
        assert not (ROOT / name).is_symlink(), f"{name}: a link out of a package cannot be packed"
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((ROOT / name).read_bytes())
            (root / name).chmod((ROOT / name).stat().st_mode)
    return root


@pytest.fixture(scope="module")
def release(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ci/release.sh filled: source distributions and wheels."""
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
    """As a stranger installs it; the source distribution has the table too."""
    with tarfile.open(next(release.glob("anychip-*.tar.gz"))) as tar:
        assert any(name.endswith("/platforms/chips.toml") for name in tar.getnames())
    zipfile.ZipFile(wheel(release, "anychip")).extractall(tmp_path)
    (metadata,) = tmp_path.glob("*.dist-info")
    device = tmp_path / "sys/bus/pci/devices/0000:00:01.0"
    device.mkdir(parents=True)
    for name, value in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
        (device / name).write_text(value)
    first, *others = platform_extras(Distribution.at(metadata), tmp_path)
    assert (first.name, first.seen) == ("cuda", "an NVIDIA GPU (10de:2335)")
    folders = {path.parent.name for path in ROOT.glob("platforms/*/pyproject.toml")}
    assert {"cuda", *(extra.name for extra in others)} == folders
    assert not any(extra.seen for extra in others)


def cpu_wheel(clone: Path, out: Path, libraries: dict[str, str], path: str, **settings: str) -> Path:
    """The CPU platform's wheel of a copy of the clone that holds `libraries` already."""
    source = out / "source"
    shutil.copytree(clone / "platforms/cpu", source)
    (source / "anychip_cpu/native/prebuilt").mkdir()
    for name, content in libraries.items():
        (source / f"anychip_cpu/native/prebuilt/{name}.so").write_text(content)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    environment = {"PATH": path, "ANYCHIP_CACHE_DIR": str(out / "cache"), **settings}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return wheel(out, "anychip_cpu")


def test_a_release_carries_every_variant(clone: Path, tmp_path: Path) -> None:
    made = cpu_wheel(clone, tmp_path, dict.fromkeys(wheels.KERNELS, "library"), "/usr/bin:/bin", ANYCHIP_RELEASE="1")
    assert {variant.name for variant in VARIANTS} == wheels.KERNELS
    assert made.name.endswith(f"-py3-none-{wheels.SYSTEMS}.whl")
    assert wheels.check_kernels(made) == []
    names = zipfile.ZipFile(made).namelist()
    assert {f"anychip_cpu/native/prebuilt/{name}.so" for name in wheels.KERNELS} <= set(names)
    assert "anychip_cpu/csrc/library.cpp" in names


def test_a_release_lacks_no_variant(clone: Path, tmp_path: Path) -> None:
    made = cpu_wheel(clone, tmp_path, {"avx2": "library"}, "/usr/bin:/bin", ANYCHIP_RELEASE="1")
    assert any("carries the kernels ['avx2']" in problem for problem in wheels.check_kernels(made))


@pytest.mark.skipif(not supported_variants(), reason="no variant for this processor")
def test_a_wheel_of_a_source_tree_gets_this_machines_kernels(clone: Path, tmp_path: Path) -> None:
    if not installed_torch().loadable:
        pytest.skip("this torch has no stable ABI")
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho compiled > "$2"\n')
    compiler.chmod(0o755)
    made = cpu_wheel(clone, tmp_path / "with", {}, f"{tmp_path}:/usr/bin:/bin")
    best = supported_variants()[0].name
    assert zipfile.ZipFile(made).read(f"anychip_cpu/native/prebuilt/{best}.so") == b"compiled\n"
    assert made.name.endswith("_x86_64.whl")


def test_a_wheel_without_a_compiler_is_pure(clone: Path, tmp_path: Path) -> None:
    made = cpu_wheel(clone, tmp_path / "without", {}, str(tmp_path))
    assert made.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(made).namelist())
