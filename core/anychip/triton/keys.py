"""Triton's keys of our programs, worked out in one order by every process."""

from __future__ import annotations

import importlib
import pkgutil
from threading import Thread

from triton.runtime.jit import JITFunction

from anychip.triton import programs


def settle_keys() -> None:
    """Work out the key of each program, by which its compiled form is found on the disk.

    Triton adds a called function's constants to the caller's key only where the key of that function is known already.
    So without this the keys depend on what was launched first, and programs are compiled again for nothing.
    """
    for module in sorted(each.name for each in pkgutil.iter_modules(programs.__path__)):
        found = vars(importlib.import_module(f"{programs.__name__}.{module}"))
        for name in sorted(name for name, value in found.items() if isinstance(value, JITFunction)):
            _ = found[name].cache_key


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
