"""The example platform as a stranger uses it: built, installed into a new environment, tested and served from there."""

import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "toy-platform"
MAX_LINES = 60
KIT = """
from anychip.testing import PlatformSuite


class TestToy(PlatformSuite):
    platform = "toy"
"""


def run(*command, cwd=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The example's wheel, built without a network by the backend that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    run(sys.executable, "-c", code, cwd=EXAMPLE)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheel):
    """Python of a new environment that has the wheel, and below it what this one has."""
    folder = tmp_path_factory.mktemp("toy")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    below = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "below.pth").write_text(below)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    return python


def test_the_example_is_small_and_uses_public_names_only():
    lines = [line for path in EXAMPLE.iterdir() if path.is_file() for line in path.read_text().splitlines()]
    assert len(lines) <= MAX_LINES
    imports = [line for line in lines if "anychip" in line and line.startswith(("import", "from"))]
    assert {line.split()[1] for line in imports} == {"anychip.plugin", "anychip.runner"}


def test_the_wheel_holds_one_module(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {"anychip_toy.py"}


def test_it_is_not_installed_here():
    assert "anychip_toy" not in sys.modules
    assert subprocess.run([sys.executable, "-c", "import anychip_toy"], capture_output=True, check=False).returncode


def test_its_three_line_test_passes_there(python, tmp_path):
    """Level 4 of the kit serves a completion over HTTP from that environment."""
    (tmp_path / "test_toy.py").write_text(KIT)
    output = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_toy.py", cwd=tmp_path)
    assert "passed" in output
    assert "skipped" not in output, output


def test_the_command_finds_it_there_and_only_there(python, tmp_path):
    command = "from anychip.cli.main import main; main()"
    output = run(python, "-c", command, "conform", "toy", "support", cwd=tmp_path)
    assert "anychip_toy" in run(python, "-c", "import anychip_toy; print(anychip_toy.__file__)")
    assert "toy: toy 0.1.0" in output
    assert "Reference" in output
    assert "Yes" not in output
