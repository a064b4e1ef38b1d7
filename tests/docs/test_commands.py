"""Each shell command in the documents is executed somewhere, or says what it needs and exists.

The marker on the line above a block says which: `run` and `test` are executed by ci/readme.sh in a clean clone,
`tested` here, `walked` one after the other by tests/contract/test_guide.py, and `needs: ...` cannot be, so each
`anychip` call in it is compared with `--help`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.docs.documents import Block, blocks, commands

from sources import ROOT

BLOCKS = blocks()
MARKERS = {"run", "test", "tested", "walked", "needs"}
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def marked(*markers: str) -> list[Block]:
    """The blocks that carry one of some markers."""
    return [block for block in BLOCKS if block.fence.marker in markers]


@cache
def help_flags(subcommand: str) -> frozenset[str]:
    """Every flag that `anychip SUBCOMMAND --help` prints."""
    command = [str(BIN / "anychip"), *subcommand.split(), "--help"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])} exits {done.returncode}: {done.stderr}"
    return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", done.stdout)) | {"--help"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_block_is_accounted_for(block: Block) -> None:
    assert block.fence.language == "bash", f"{block.place}: write ```bash"
    assert block.fence.marker in {"run", "test", "tested", "walked", "needs"}, (
        f"{block.place}: no marker on the line above"
    )
    assert (block.fence.marker == "needs") == bool(block.fence.detail), f"{block.place}: `needs` says what"
    if block.fence.marker in {"run", "test"}:
        assert block.document == "README.md", f"{block.place}: ci/readme.sh reads the README only"
    if block.fence.marker == "walked":
        assert block.document == "docs/write-a-platform.md", f"{block.place}: tests/contract/test_guide.py reads one"


@pytest.mark.parametrize("marker", ["run", "test"])
def test_readme_has_one_block_for_each_command(marker: str) -> None:
    assert len(marked(marker)) == 1


@pytest.mark.parametrize("block", marked("tested"), ids=lambda block: block.place)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    command = ["bash", "-euo", "pipefail", "-c", block.fence.text]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{block.place}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("block", marked("run", "walked", "needs"), ids=lambda block: block.place)
def test_block_calls_what_exists(block: Block) -> None:
    for command in commands(block.fence.text):
        unknown = set(command.flags) - help_flags(command.subcommand)
        assert not unknown, f"{block.place}: anychip {command.subcommand} has no {sorted(unknown)}"
