"""Triton's cache keys of our programs, worked out by every process in one order, so that they are the same in all."""

from __future__ import annotations

import importlib
import pkgutil
from threading import Thread

import triton
from triton.runtime.jit import JITFunction

from anychip.triton import gluon_programs, programs
from anychip.triton.programs.order import wait_for_previous

GLUON = (3, 6), (3, 7)
"""Versions of Triton that compile our programs in Gluon: its language is experimental and changes between versions."""


def triton_version() -> tuple[int, ...]:
    """Major and minor version of the Triton in use, asked of itself: nightly builds are packaged under another name."""
    return tuple(int(part) for part in triton.__version__.split(".")[:2])


def has_gluon() -> bool:
    """Whether the Triton in use is known to compile our programs in Gluon."""
    return triton_version() in GLUON


def settle_keys() -> None:
    """Work out the cache key of each program, by which its compiled form is found on the disk.

    Triton adds a called function's constants to the caller's key only if that function's key is known already. Without
    this, keys would depend on what was launched first, and programs be compiled again for nothing. In Triton's
    interpreter programs have no keys, and nothing is done.
    """
    if not isinstance(wait_for_previous, JITFunction):  # interpreted, but for those in Gluon
        return
    for module in program_modules():
        found = vars(importlib.import_module(module))
        for name in sorted(name for name, value in found.items() if isinstance(value, JITFunction)):
            _ = found[name].cache_key


def program_modules() -> list[str]:
    """Names of the modules of all programs that the Triton in use compiles, sorted."""
    packages = (programs, gluon_programs) if has_gluon() else (programs,)
    return sorted(
        f"{package.__name__}.{each.name}" for package in packages for each in pkgutil.iter_modules(package.__path__)
    )


def start_hashing() -> Thread:
    """Start a thread in which Triton hashes its own sources for its keys: half a second that the first launch saves."""
    thread = Thread(target=_hash_triton, daemon=True)
    thread.start()
    return thread


def _hash_triton() -> None:
    try:
        from triton.runtime.cache import triton_key
    except ImportError:  # an older one: its first launch works it out
        return
    triton_key()
