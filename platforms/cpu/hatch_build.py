"""Puts compiled kernels into a wheel, and tags it with the systems that they run on; without them it is pure Python.

A release carries what `ci/build_kernels.sh` left in the package. Any other wheel gets the variant of this machine, if
the environment it is made for has a compiler and a torch with the stable ABI: none is downloaded to build with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSIDE = "anychip_cpu/native/prebuilt"


class KernelsHook(BuildHookInterface[Any]):
    """Builds and tags."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the wheel is packed; an editable install finds its kernels in the cache, by their sources."""
        folder = Path(self.root) / INSIDE
        prebuilt = version != "editable" and bool(list(folder.glob("*.so")))
        if prebuilt:
            system = self.config["platform"]
        elif os.environ.get("ANYCHIP_RELEASE") == "1":
            return
        else:
            built = self._build()
            if built is None or version == "editable":
                return
            build_data["force_include"][str(built[1])] = f"{INSIDE}/{built[0]}.so"
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{system}"

    def _build(self) -> tuple[str, Path] | None:
        """This machine's variant and its library in the cache; None where there can be none, and why is said."""
        package = ModuleType("anychip_cpu")  # without its __init__, which needs anychip installed
        package.__path__ = [str(Path(self.root) / "anychip_cpu")]
        sys.modules["anychip_cpu"] = package
        from anychip_cpu.native.compile import build, library_path, obstacle, torch_below
        from anychip_cpu.native.variants import supported_variants

        variants = [variant for variant in supported_variants() if variant.tested]
        installed = next(filter(None, map(torch_below, _packages())), None)
        reason = "no torch is installed yet" if installed is None else obstacle(installed)
        if installed is None or reason or not variants:
            self._say(f"none are built, as {reason or 'there are none for this processor'}")
            return None
        cache = Path(os.environ.get("ANYCHIP_CACHE_DIR", "~/.cache/anychip")).expanduser() / "native"
        output = library_path(cache, variants[0], installed)
        try:
            if not output.is_file():
                build(variants[0], installed, output)
        except (OSError, subprocess.CalledProcessError) as error:
            self._say(f"{variants[0].name} did not compile: {getattr(error, 'stderr', error)}")
            return None
        self._say(f"{variants[0].name}, built with torch {installed.version}")
        return variants[0].name, output

    def _say(self, what: str) -> None:
        self.app.display_info(f"anychip-cpu: native kernels: {what}")


def _packages() -> list[Path]:
    """Where the environment that is installed into keeps packages, from inside an isolated build as well."""
    active = os.environ.get("VIRTUAL_ENV")
    prefixes = [{"base": base, "platbase": base} for base in (active, sys.prefix) if base]
    folders = [Path(sysconfig.get_path(name, vars=prefix)) for prefix in prefixes for name in ("platlib", "purelib")]
    return [*folders, *(Path(entry) for entry in sys.path if entry)]
