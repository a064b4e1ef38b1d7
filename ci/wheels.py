"""Checks release wheels: one version, siblings pinned to it, no path of a machine, all kernels or none."""

from __future__ import annotations

import re
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

SIBLING = re.compile(r"^anychip(?:-\w+)?(?![\w-])")

KERNELS = {"amx", "avx2", "avx512", "avx512_vnni_bf16"}
"""Libraries of a wheel that carries compiled kernels."""
SYSTEMS = "manylinux_2_34_x86_64"
"""Where they run: ci/build_kernels.sh refuses libraries that need more."""


def metadata(wheel: Path) -> Message:
    """The METADATA file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def check(folder: Path) -> list[str]:
    """Every problem of the wheels in a folder."""
    wheels = sorted(folder.glob("anychip*.whl"))
    described = {wheel.name: metadata(wheel) for wheel in wheels}
    versions = {str(message["Version"]) for message in described.values()}
    if len(versions) != 1:
        return [f"{folder}: the wheels carry {len(versions)} versions: {sorted(versions)}"]
    (version,) = versions
    problems = [problem for wheel in wheels for problem in check_kernels(wheel)]
    for name, message in described.items():
        for requirement in message.get_all("Requires-Dist", []):
            sibling = SIBLING.match(requirement)
            if "file:" in requirement or " @ " in requirement:
                problems.append(f"{name}: requires a path: {requirement}")
            elif sibling and not re.match(rf"{re.escape(sibling.group() + '==' + version)}(\s*;.*)?$", requirement):
                problems.append(f"{name}: must pin {sibling.group()}=={version}, has {requirement}")
    return problems


def check_kernels(wheel: Path) -> list[str]:
    """What is wrong with a wheel's compiled libraries: some are missing, or its tag promises other systems."""
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
    libraries = {name.stem for name in names if name.suffix == ".so"}
    tag = wheel.stem.rpartition("-")[2]
    problems = []
    if libraries and libraries != KERNELS:
        problems.append(f"{wheel.name}: carries the kernels {sorted(libraries)}, not {sorted(KERNELS)}")
    if tag != (SYSTEMS if libraries else "any"):
        problems.append(f"{wheel.name}: is tagged {tag}")
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "wheels: ok")
    sys.exit(1 if found else 0)
