"""How large a release is: each wheel, and a new environment with a platform in it.

`ci/release.sh dist` first, after `ci/build_kernels.sh` for wheels that carry the CPU's kernels. Then
`python benchmarks/sizes.py dist [--environment cpu]` prints tables. Each `--environment` makes one, which takes a
package index and minutes, and deletes it again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEBIBYTE = 2**20
LISTED = 8
"""Distributions of an environment that are named, the largest first."""
COUNT = """
import importlib.metadata, json
sizes = {}
for each in importlib.metadata.distributions():
    paths = [each.locate_file(file) for file in each.files or []]
    sizes[f"{each.name} {each.version}"] = sum(path.stat().st_size for path in paths if path.is_file())
print(json.dumps(sizes))
"""


def wheel_row(wheel: Path) -> str:
    """Name, packed and unpacked size, and number of files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.infolist()
    unpacked = sum(file.file_size for file in files)
    return f"| `{wheel.name}` | {wheel.stat().st_size / 1024:.0f} | {unpacked / 1024:.0f} | {len(files)} |"


def environment_rows(wheels: Path, platform: str) -> list[str]:
    """The sizes of a new environment with the root's wheel and a platform's: in all, and of its largest parts."""
    packages = [next(wheels.glob(f"{name}-*.whl")) for name in ("anychip", f"anychip_{platform}")]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        options = ["--quiet", "--no-compile", "-c", str(ROOT / "ci/constraints.txt")]
        subprocess.run([python, "-m", "pip", "install", *options, *packages], check=True)
        done = subprocess.run([python, "-c", COUNT], check=True, capture_output=True, text=True)
        total = sum(
            path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()
        )
    sizes = sorted(json.loads(done.stdout).items(), key=lambda item: -item[1])
    rows = [(f"all, {len(sizes)} distributions", total), *sizes[:LISTED]]
    rows += [(name, size) for name, size in sizes[LISTED:] if name.startswith("anychip")]
    return [f"| {name} | {size / MEBIBYTE:.1f} |" for name, size in rows]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, help="folder of wheels, as ci/release.sh makes it")
    parser.add_argument("--environment", action="append", default=[], metavar="PLATFORM")
    arguments = parser.parse_args()
    rows = [wheel_row(wheel) for wheel in sorted(arguments.wheels.glob("anychip*.whl"))]
    print("\n".join(["| wheel | KiB | unpacked, KiB | files |", "|---|---|---|---|", *rows]))
    for platform in arguments.environment:
        rows = environment_rows(arguments.wheels, platform)
        print("\n".join(["", f"| a new environment with `{platform}` | MiB |", "|---|---|", *rows]))


if __name__ == "__main__":
    main()
