"""ci/readme.sh executes a clone of the README and nothing else; .ci/run ends with the closing line and its status."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sources import ROOT

README = """
<!-- run -->
```bash
{run}
```

<!-- test -->
```bash
{test}
```
"""
PASSED = "===== 3 passed in 0.10s ====="


def repository(root: Path, run: str, test: str) -> Path:
    """A repository with our ci/ scripts and a README of these two commands."""
    others = [path.name for path in (ROOT / "ci").glob("lane_*.sh") if path.name != "lane_run.sh"]  # they need the code
    shutil.copytree(ROOT / "ci", root / "ci", ignore=shutil.ignore_patterns("__pycache__", *others))
    shutil.copytree(ROOT / ".ci", root / ".ci")
    (root / "README.md").write_text(README.format(run=run, test=test))
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "start"]):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    return root


def execute(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The finished command, run in a repository."""
    return subprocess.run([*command], cwd=root, capture_output=True, text=True, check=False)


def test_the_block_runs_in_a_clone_of_the_last_commit(tmp_path: Path) -> None:
    root = repository(tmp_path, run="pwd\ncat notes || echo clean", test="true")
    (root / "notes").write_text("not committed")
    done = execute(root, "ci/readme.sh", "run")
    place, answer = done.stdout.split()
    assert done.returncode == 0
    assert answer == "clean"
    assert Path(place) != root
    assert not Path(place).exists()


def test_a_block_stops_at_its_first_failure(tmp_path: Path) -> None:
    done = execute(repository(tmp_path, run="false\necho on", test="true"), "ci/readme.sh", "run")
    assert done.returncode != 0
    assert "on" not in done.stdout.split()


@pytest.mark.parametrize(
    ("run", "test", "passes"),
    [
        ("echo Paris", f"echo '{PASSED}'", True),
        ("echo London", f"echo '{PASSED}'", False),
        ("echo Paris", f"echo '{PASSED}'\nfalse", False),
        ("false", f"echo '{PASSED}'", False),
    ],
)
def test_ci_run_ends_with_the_closing_line(tmp_path: Path, run: str, test: str, passes: bool) -> None:
    done = execute(repository(tmp_path, run, test), ".ci/run")
    assert done.stdout.splitlines()[-1] == PASSED
    assert (done.returncode == 0) == passes
    assert ("FAILED" in done.stdout) != passes


def test_ci_run_fails_when_pytest_never_finished(tmp_path: Path) -> None:
    done = execute(repository(tmp_path, "echo Paris", "echo lint"), ".ci/run")
    assert done.returncode == 1
    assert "pytest did not finish" in done.stdout
