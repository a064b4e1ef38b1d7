"""The example platform: how small it is, and what is in its wheel. tests/contract/test_guide.py runs it."""

import subprocess
import sys
import zipfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "toy-platform"
MAX_LINES = 60


def test_the_example_is_small_and_uses_public_names_only():
    lines = [line for path in EXAMPLE.iterdir() if path.is_file() for line in path.read_text().splitlines()]
    assert len(lines) <= MAX_LINES
    imports = [line for line in lines if "anychip" in line and line.startswith(("import", "from"))]
    assert {line.split()[1] for line in imports} == {"anychip.plugin", "anychip.runner"}


def test_the_wheel_holds_one_module(tmp_path):
    """Built without a network by the backend that is installed here."""
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=EXAMPLE, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {"anychip_toy.py"}
