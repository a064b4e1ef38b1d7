"""Compiling a variant with the torch that is installed: nothing is downloaded.

`python -m anychip_cpu.native.build [--into FOLDER] [VARIANT ...]` builds the variants named, else the best one here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from anychip.config import make_config
from anychip.errors import UserError
from anychip_cpu.native.compile import Torch, build, library_path, obstacle
from anychip_cpu.native.variants import VARIANTS, Variant, supported_variants


def installed_torch() -> Torch:
    """The torch that this process imports."""
    return Torch(Path(torch.__file__).parent, str(torch.__version__))


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
    reason = obstacle(installed_torch()) if chosen else f"this processor has none of {names}"
    if reason is not None:
        yield f"no native kernels, as {reason}; torch's operators run"
        return
    for variant in chosen:
        output = library_path(folder, variant, installed_torch())
        if not output.is_file():
            try:
                build(variant, installed_torch(), output)
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
    if (reason := obstacle(installed_torch())) is not None:
        sys.stderr.write(f"The kernels cannot be built: {reason}.\n")
        return 1
    if options.once:
        os.nice(10)
    chosen = [variant for variant in VARIANTS if variant.name in options.variants] or supported_variants()[:1]
    for variant in chosen:
        kept = library_path(options.into, variant, installed_torch())
        output = options.into / f"{variant.name}.so" if options.plain_names else kept
        try:
            build(variant, installed_torch(), output, options.option)
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
