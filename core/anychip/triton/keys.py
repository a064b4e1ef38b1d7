"""Triton's keys of our programs, worked out in one order by every process."""

from __future__ import annotations

import importlib
import pkgutil
from threading import Thread

import triton
from triton.runtime.jit import JITFunction

from anychip.triton import gluon_programs, programs
from anychip.triton.programs.order import wait_for_previous

GLUON = (3, 6), (3, 7)
"""Versions of Triton with which our programs in Gluon were compiled: it is an experiment, and may change."""


def triton_version() -> tuple[int, ...]:
    """That of the Triton which is used, without its last number; beside nightly builds its package has another name."""
    return tuple(int(part) for part in triton.__version__.split(".")[:2])


def has_gluon() -> bool:
    """Whether this Triton is one that is known to read our programs in Gluon."""
    return triton_version() in GLUON


def settle_keys() -> None:
    """Work out the key of each program, by which its compiled form is found on the disk.

    Triton adds a called function's constants to the caller's key only where the key of that function is known already.
    So without this the keys depend on what was launched first, and programs are compiled again for nothing. What is
    interpreted has no key.
    """
    if not isinstance(wait_for_previous, JITFunction):  # interpreted, but for those in Gluon
        return
    for module in program_modules():
        found = vars(importlib.import_module(module))
        for name in sorted(name for name, value in found.items() if isinstance(value, JITFunction)):
            _ = found[name].cache_key


def program_modules() -> list[str]:
    """The modules of all programs that this Triton reads, sorted."""
    packages = (programs, gluon_programs) if has_gluon() else (programs,)
    return sorted(
        f"{package.__name__}.{each.name}" for package in packages for each in pkgutil.iter_modules(package.__path__)
    )


def start_hashing() -> Thread:
    """A thread in which Triton reads all of itself for its keys, half a second that the first launch then is spared."""
    thread = Thread(target=_hash_triton, daemon=True)
    thread.start()
    return thread


def _hash_triton() -> None:
    try:
        from triton.runtime.cache import triton_key
    except ImportError:  # an older one: its first launch works it out
        return
    triton_key()
