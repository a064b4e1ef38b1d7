"""What the code imports is declared, what is declared is explained, and what is explained is pinned for CI."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from itertools import chain

import pytest

from imports import imports
from sources import ROOT, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
OPTIONAL = {"matplotlib", "opentelemetry", "triton"}  # imported where they are used, with a sentence if they lack
OURS = ("anychip", "anychip_")


def canonical(requirement: str) -> str:
    """The package's name alone, as indexes write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


REQUIRED = {canonical(requirement) for requirement in PROJECT["project"]["dependencies"]}
FOR_FEATURES = {canonical(requirement) for packages in EXTRAS["features"].values() for requirement in packages}
FOR_TESTS = {canonical(requirement) for requirement in EXTRAS["test"]} | FOR_FEATURES


def imported(*folders: str) -> set[str]:
    """Third-party top-level modules that the Python files of some folders import."""
    found = {use.module.split(".")[0] for source in sources(ROOT, folders, (".py",)) for use in imports(source)}
    return {name for name in found if name not in sys.stdlib_module_names and not name.startswith(OURS)}


def test_core_and_server_import_only_what_is_declared() -> None:
    kit = {"pytest"}  # the suite of the conformance kit, which nothing else imports
    assert {canonical(name) for name in imported("core", "api")} - kit <= REQUIRED | OPTIONAL


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("platforms/*/pyproject.toml")))
def test_platform_imports_only_what_is_declared(folder: str) -> None:
    described = tomllib.loads((ROOT / "platforms" / folder / "pyproject.toml").read_text())
    choices = described["project"].get("optional-dependencies", {}).values()
    needed = [*described["project"]["dependencies"], *described["build-system"]["requires"], *chain(*choices)]
    declared = {canonical(requirement) for requirement in needed}
    assert {canonical(name) for name in imported(f"platforms/{folder}")} <= REQUIRED | declared


def test_each_dependency_is_explained() -> None:
    rows = [line for line in (ROOT / "docs/dependencies.md").read_text().splitlines() if line.startswith("| `")]
    explained = {canonical(name) for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert explained == REQUIRED | FOR_TESTS


def test_each_dependency_is_pinned_for_ci() -> None:
    lines = (ROOT / "ci/constraints.txt").read_text().splitlines()
    pins = {canonical(line) for line in lines if "==" in line}
    assert pins >= REQUIRED | FOR_TESTS
    assert not any(name.startswith("nvidia") or name == "triton" for name in pins)


def test_nothing_but_torch_brings_gpu_packages() -> None:
    reached, waiting = set(), {canonical(line) for line in metadata.requires("anychip") or [] if "extra ==" not in line}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        requirements = [] if name == "torch" else metadata.requires(name) or []
        waiting |= {canonical(line) for line in requirements if ";" not in line} - reached
    assert not [name for name in reached if name.startswith("nvidia") or name == "triton"]


def test_each_platform_folder_has_its_extra() -> None:
    assert EXTRAS["platforms"] == sorted(path.parent.name for path in ROOT.glob("platforms/*/pyproject.toml"))
    for name in EXTRAS["platforms"]:
        assert (ROOT / "platforms" / name / "Containerfile").is_file()
        assert f"platforms/{name}/anychip_{name}" in PROJECT["tool"]["mypy"]["files"]
        assert f"platforms/{name}" in PROJECT["tool"]["ruff"]["src"]
