"""docs/write-a-platform.md, walked through command by command in a new environment, as a stranger would."""

import json
import subprocess
import sys
import urllib.request

import pytest
from tests.contract.stranger import Stranger

from fences import shell_fences
from sources import ROOT

GUIDE = ROOT / "docs" / "write-a-platform.md"
BLOCKS = [fence.text for fence in shell_fences(GUIDE.read_text()) if fence.marker == "walked"]
KIT = """
from anychip.testing import PlatformSuite


class TestToy(PlatformSuite):
    platform = "toy"
"""
SOME = ("L0", "L3 sampling: top_k", "L4 completion", "L4 over HTTP")
"""Checks of the example; the package that was written is one like it, and runs them all."""


pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Somebody in a folder that has the repository's examples."""
    stranger = Stranger(tmp_path_factory.mktemp("stranger"))
    (stranger.work / "examples").symlink_to(ROOT / "examples")
    return stranger


def complete(address):
    """The text of one completion."""
    body = json.dumps({"model": "demo", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0})
    request = urllib.request.Request(f"{address}/v1/completions", body.encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["text"]


def walk(stranger, block):
    """What the lines of a block print, in order; a server is asked for a completion and ended."""
    printed = []
    for line in block.splitlines():
        printed.append(stranger.serve(line, complete) if "anychip serve" in line else stranger.shell(line))
    return printed


def test_the_guide_has_all_its_commands_walked():
    assert len(BLOCKS) == 3
    assert [fence.text for fence in shell_fences(GUIDE.read_text())] == BLOCKS


def test_a_package_of_ones_own_passes_the_kit_as_it_was_written(stranger):
    written, _, report = walk(stranger, BLOCKS[0])
    assert "anychip-mychip/anychip_mychip/platform.py" in written
    assert "pip install -e" in written
    assert "mychip: mychip 0.1.0" in report
    assert {f"L{level}" for level in range(5)} == {line[:2] for line in report.splitlines() if line[:1] == "L"}
    assert report.splitlines()[-1].endswith(" passed"), "all checks passed, none failed or did not apply"


def test_the_package_follows_our_own_rules(stranger):
    stranger.shell("anychip new-platform neat && cd anychip-neat && ruff check . && ruff format --check .")
    stranger.shell(f"ruff check --config {ROOT}/pyproject.toml anychip-neat/anychip_neat")
    options = f"--config-file {ROOT}/pyproject.toml --cache-dir {ROOT}/.mypy_cache"
    stranger.shell(f"mypy {options} anychip-neat/anychip_neat")


def test_the_example_is_installed_seen_asked_and_served(stranger):
    _, listed, answer, served = walk(stranger, BLOCKS[1])
    assert any("toy" in line and "-1" in line and "runs only by name" in line for line in listed.splitlines())
    assert any("mychip" in line and "-1" in line for line in listed.splitlines()), "two strangers side by side"
    assert "Paris" in answer
    assert "Paris" in served
    assert subprocess.run([sys.executable, "-c", "import anychip_toy"], capture_output=True, check=False).returncode


def test_the_kit_says_of_the_example_what_the_guide_says(stranger):
    report, timed, supported = walk(stranger, BLOCKS[2])
    assert {"L0"} == {line[:2] for line in report.splitlines() if line[:1] == "L"}
    assert report.splitlines()[-1].endswith(" passed")
    assert "reference µs" in timed
    assert "Reference" in supported
    assert "Yes" not in supported


def test_its_three_line_test_passes(stranger):
    (stranger.work / "test_toy.py").write_text(KIT)
    chosen = " or ".join(f"({name.replace(': ', ' ').replace(' ', ' and ')})" for name in SOME)
    output = stranger.shell(f"pytest -q -p no:cacheprovider -k '{chosen}' test_toy.py")
    assert "passed" in output
    assert "skipped" not in output, output
