"""Compiling a variant with the torch that is installed: nothing is downloaded.

`python -m anychip_cpu.native.build [--into FOLDER] [VARIANT ...]` builds the variants named, else the best one here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from anychip.config import make_config
from anychip.errors import UserError
from anychip_cpu.native.variants import VARIANTS, Variant, supported_variants

STABLE_ABI = (2, 10)
"""The first torch whose stable ABI has all that the kernels call."""
COMPILERS = ("g++", "c++", "clang++")


def sources() -> Path:
    """The folder of C++ sources: beside the package in a source tree, inside it in a wheel."""
    package = Path(__file__).parents[1]
    inside = package / "csrc"
    return inside if inside.is_dir() else package.parent / "csrc"


def library_path(folder: Path, variant: Variant) -> Path:
    """Where a build of the present sources with the present torch lies in `folder`."""
    digest = hashlib.sha256("\0".join((torch.__version__, *variant.options)).encode())
    for source in sorted(sources().glob("*.*")):
        digest.update(source.read_bytes())
    return folder / f"{variant.name}-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """A C++ compiler on the path."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def loadable() -> bool:
    """Whether this torch has the stable ABI that the kernels were written for."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= STABLE_ABI


def obstacle() -> str | None:
    """Why the kernels cannot be built here, or None."""
    if not loadable():
        return f"they need torch {STABLE_ABI[0]}.{STABLE_ABI[1]}, and this is {torch.__version__}"
    if find_compiler() is None:
        return "no C++ compiler is installed"
    return None


def namespace(variant: Variant) -> str:
    """Where torch.ops has the variant's operators."""
    return f"anychip_cpu_{variant.name}"


def command(compiler: str, variant: Variant, output: Path, extra: Sequence[str] = ()) -> list[str]:
    """The compiler's command line. Nothing linked names Python, so one library serves every version of it."""
    home = Path(torch.__file__).parent
    include = home / "include"
    return [
        *(compiler, "-O2", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        *variant.options,
        *extra,
        f"-DANYCHIP_NAMESPACE={namespace(variant)}",
        f"-DTORCH_TARGET_VERSION=0x{STABLE_ABI[0]:02x}{STABLE_ABI[1]:02x}{0:012x}",
        *("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")),
        *(str(sources() / "library.cpp"), "-o", str(output)),
        *(f"-L{home / 'lib'}", "-ltorch_cpu", "-ltorch", "-lc10"),
    ]


def build(variant: Variant, output: Path, extra: Sequence[str] = ()) -> None:
    """Compile `variant` to `output`, which appears whole or not at all; `extra` goes to the compiler.

    Raises `CalledProcessError`.
    """
    compiler = find_compiler()
    assert compiler is not None, "obstacle() is asked first"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        subprocess.run(command(compiler, variant, made, extra), check=True, capture_output=True, text=True)
        made.replace(output)


def build_chosen(folder: Path, choice: str) -> Iterator[str]:
    """Build a variant into `folder`: one by name, which need not run here, or the best one here for `auto`.

    Yields what was done, or why nothing can be. Raises `UserError` for another name, and where compiling fails.
    """
    chosen = [variant for variant in VARIANTS if variant.name == choice]
    names = ", ".join(variant.name for variant in VARIANTS)
    if choice == "auto":
        chosen = [variant for variant in supported_variants() if variant.tested][:1]
    elif not chosen:
        raise UserError(f"There are no native kernels {choice!r} to build.", f"--native-kernels can be: {names}.")
    reason = obstacle() if chosen else f"this processor has none of {names}"
    if reason is not None:
        yield f"no native kernels, as {reason}; torch's operators run"
        return
    for variant in chosen:
        output = library_path(folder, variant)
        if not output.is_file():
            try:
                build(variant, output)
            except subprocess.CalledProcessError as error:
                raise UserError(f"The native kernels {variant.name} did not compile.", error.stderr) from None
        yield f"native kernels {variant.name} at {output}"


def build_in_background(variant: Variant, folder: Path) -> bool:
    """Start a process that builds `variant` into `folder` and outlives this one; False where one is at work already."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [sys.executable, "-m", "anychip_cpu.native.build", "--once", "--into", str(folder), variant.name]
    lock = _lock(folder, variant)
    if lock.exists() and _alive(lock):
        return False
    with (folder / f"{variant.name}.log").open("w") as log:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    lock.write_text(str(process.pid))
    return True


def _lock(folder: Path, variant: Variant) -> Path:
    return folder / f"{variant.name}.building"


def _alive(lock: Path) -> bool:
    try:
        os.kill(int(lock.read_text()), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def main(arguments: list[str]) -> int:
    """Build what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m anychip_cpu.native.build", description=__doc__)
    parser.add_argument("variants", nargs="*", metavar="VARIANT")
    parser.add_argument("--into", type=Path, default=make_config({}).cache_path / "native")
    parser.add_argument("--plain-names", action="store_true", help="name files as wheels carry them")
    parser.add_argument("--option", action="append", default=[], help="an option more for the compiler")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if (reason := obstacle()) is not None:
        sys.stderr.write(f"The kernels cannot be built: {reason}.\n")
        return 1
    if options.once:
        os.nice(10)
    chosen = [variant for variant in VARIANTS if variant.name in options.variants] or supported_variants()[:1]
    for variant in chosen:
        output = options.into / f"{variant.name}.so" if options.plain_names else library_path(options.into, variant)
        try:
            build(variant, output, options.option)
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"{variant.name} failed to compile:\n{error.stderr}\n")
            return 1
        sys.stdout.write(f"{output}\n")
    if options.once:
        for variant in chosen:
            _lock(options.into, variant).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
