"""Finding the library for this processor, without ever compiling while somebody waits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anychip.errors import UserError
from anychip_cpu.native.build import build_in_background, installed_torch
from anychip_cpu.native.compile import library_path, namespace, obstacle
from anychip_cpu.native.variants import VARIANTS, Variant, supported_variants

PREBUILT = Path(__file__).parent / "prebuilt"
"""Where wheels carry libraries."""


@dataclass(frozen=True, slots=True)
class Library:
    """The operators of a loaded variant."""

    variant: Variant
    ops: Any
    run_bound: Callable[[int], bytes | None]
    """Runs a bound program, without the interpreter's lock; what went wrong, or None."""


@dataclass(frozen=True, slots=True)
class Search:
    """What was found, and a line about it for the start-up log."""

    library: Library | None
    note: str
    missing: Variant | None = None
    """The variant to build, where there is none and one could be built."""


NONE = Search(None, "")


def load(variant: Variant, path: Path) -> Library:
    """Load a built library; loading it again is no error."""
    torch.ops.load_library(str(path))
    run_bound = ctypes.CDLL(str(path)).anychip_run_bound
    run_bound.argtypes, run_bound.restype = [ctypes.c_int64], ctypes.c_char_p
    return Library(variant, getattr(torch.ops, namespace(variant)), run_bound)


def open_library(cache: Path, choice: str = "auto") -> Search:
    """The best library that is there, in a wheel or in `cache`.

    `choice` is a variant's name, `auto`, or `none`. Raises `UserError` for a variant that cannot run here.
    """
    if choice == "none":
        return Search(None, "native kernels: off; torch's operators run")
    variants, installed = _candidates(choice), installed_torch()
    for variant in variants if installed.loadable else ():
        for path in (PREBUILT / f"{variant.name}.so", library_path(cache, variant, installed)):
            if path.is_file():
                untested = "" if variant.tested else ", which were never tested"
                return Search(load(variant, path), f"native kernels: {variant.name}{untested}")
    reason = obstacle(installed)
    if not variants:
        reason = "this processor has none of " + ", ".join(variant.name for variant in VARIANTS)
    if reason is not None:
        return Search(None, f"native kernels: none, as {reason}; torch's operators run")
    return Search(None, "native kernels: not built yet; torch's operators run", variants[0])


def build_missing(search: Search, cache: Path) -> Search:
    """Start building in the background what was not found, for the next start."""
    if search.missing is None:
        return search
    started = build_in_background(search.missing, cache)
    what = "are being built in the background" if started else "are still being built"
    return Search(None, f"native kernels: {search.missing.name} {what} for the next start; torch's operators run")


def _candidates(choice: str) -> tuple[Variant, ...]:
    supported = supported_variants()
    if choice == "auto":
        return tuple(variant for variant in supported if variant.tested)
    chosen = tuple(variant for variant in supported if variant.name == choice)
    if not chosen:
        names = ", ".join(variant.name for variant in supported) or "none"
        raise UserError(f"This processor does not run the native kernels {choice!r}.", f"It runs: {names}.")
    return chosen
