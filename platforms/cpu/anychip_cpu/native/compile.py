"""The compiler's command line for a variant, and its run. Imports no torch: a build backend has none."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anychip_cpu.native.variants import Variant

STABLE_ABI = (2, 10)
"""The first torch whose stable ABI has all that the kernels call."""
COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True, slots=True)
class Torch:
    """An installed torch, whose headers and libraries lie in the folder `home`."""

    home: Path
    version: str

    @property
    def loadable(self) -> bool:
        """Whether it has the stable ABI that the kernels were written for."""
        major, minor = self.version.split(".")[:2]
        return (int(major), int(minor)) >= STABLE_ABI


def torch_below(packages: Path) -> Torch | None:
    """The torch in a folder of packages."""
    version = packages / "torch/version.py"
    found = re.search(r"^__version__ = '(.+)'", version.read_text(), re.MULTILINE) if version.is_file() else None
    return Torch(version.parent, found[1]) if found else None


def obstacle(torch: Torch) -> str | None:
    """Why the kernels cannot be built with a torch, or None."""
    if not torch.loadable:
        return f"they need torch {STABLE_ABI[0]}.{STABLE_ABI[1]}, and this is {torch.version}"
    if find_compiler() is None:
        return "no C++ compiler is installed"
    return None


def sources() -> Path:
    """The folder of C++ sources: beside the package in a source tree, inside it in a wheel."""
    package = Path(__file__).parents[1]
    inside = package / "csrc"
    return inside if inside.is_dir() else package.parent / "csrc"


def library_path(folder: Path, variant: Variant, torch: Torch) -> Path:
    """Where a build of the present sources with a torch lies in `folder`."""
    digest = hashlib.sha256("\0".join((torch.version, *variant.options)).encode())
    for source in sorted(sources().glob("*.*")):
        digest.update(source.read_bytes())
    return folder / f"{variant.name}-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """A C++ compiler on the path."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def namespace(variant: Variant) -> str:
    """Where torch.ops has the variant's operators."""
    return f"anychip_cpu_{variant.name}"


def command(compiler: str, variant: Variant, torch: Torch, output: Path, extra: Sequence[str] = ()) -> list[str]:
    """The compiler's command line. Nothing linked names Python, so one library serves every version of it."""
    include = torch.home / "include"
    return [
        *(compiler, "-O2", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        *variant.options,
        *extra,
        f"-DANYCHIP_NAMESPACE={namespace(variant)}",
        f"-DTORCH_TARGET_VERSION=0x{STABLE_ABI[0]:02x}{STABLE_ABI[1]:02x}{0:012x}",
        *("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")),
        *(str(sources() / "library.cpp"), "-o", str(output)),
        *(f"-L{torch.home / 'lib'}", "-ltorch_cpu", "-ltorch", "-lc10"),
    ]


def build(variant: Variant, torch: Torch, output: Path, extra: Sequence[str] = ()) -> None:
    """Compile `variant` to `output`, which appears whole or not at all; `extra` goes to the compiler.

    Raises `CalledProcessError`.
    """
    compiler = find_compiler()
    assert compiler is not None, "obstacle() is asked first"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        subprocess.run(command(compiler, variant, torch, made, extra), check=True, capture_output=True, text=True)
        made.replace(output)
