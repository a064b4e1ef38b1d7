"""`--version` and `--help` are quick, and import no torch."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from tests.cli.command import ENVIRONMENT, LIMIT, run

from anychip.cli.app import COMMANDS
from anychip.cli.fields import engine_fields, server_fields
from anychip.version import __version__

QUICK_SECONDS = 3
"""Of a processor's time, which no waiting counts in; ten times what it takes."""


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"anychip {__version__}\n")


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f" {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["serve", "--help"], ["run", "--help"]])
def test_help_is_quick_and_imports_no_torch(arguments: list[str]) -> None:
    program = f"""
import sys
sys.argv = ["anychip", *{arguments!r}]
from anychip.cli.main import main
try:
    main()
finally:
    print("heavy:", sorted({{"torch", "transformers"}} & set(sys.modules)), file=sys.stderr)
"""
    begin = spent()
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "heavy: []"
    assert spent() - begin < QUICK_SECONDS


def spent() -> float:
    """Processor seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_serve_has_a_flag_for_every_option() -> None:
    text = run("serve", "--help").stdout
    assert [field.flag for field in [*engine_fields(), *server_fields()] if field.flag not in text] == []
