"""Memory of the host: what the kernel calls available, within the limits of our control groups."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from anychip.plugin.contract import Memory
from anychip.runner.control_groups import control_groups

_NO_LIMIT = 1 << 60
"""Control groups of version 1 write a number near 2^63 for "no limit"."""

_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
"""Limit and use, by version."""


def host_memory(root: Path = Path("/")) -> Memory:
    """Bytes free for this process and bytes it could have in all.

    What the process had in use at its peak and gave back is not free: the next step like it needs it again.
    """
    info = _fields(root / "proc/meminfo")
    free, total = info["MemAvailable"], info["MemTotal"]
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, max(0, limit - used))
    status = _fields(root / "proc/self/status")
    return Memory(max(0, free - max(0, status.get("VmHWM", 0) - status.get("VmRSS", 0))), total)


def give_back_heap() -> None:
    """Return what was freed to the system, where the C library would keep it for itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _fields(path: Path) -> dict[str, int]:
    """Lines `Name:  123 kB` of a file of /proc, in bytes."""
    fields = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            fields[name] = int(words[0]) * 1024
    return fields


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes in use) of each control group we are in that has a limit."""
    for folder, version in control_groups(root, "memory"):
        limit_name, usage_name = _FILES[version]
        limit = _number(folder / limit_name)
        if limit is not None and limit < _NO_LIMIT:
            used = _number(folder / usage_name) or 0
            yield limit, max(0, used - _reclaimable(folder / "memory.stat"))


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no such file, or it says `max`."""
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None


def _reclaimable(path: Path) -> int:
    """Bytes of file cache that count as in use and go when needed."""
    lines = path.read_text().splitlines() if path.is_file() else []
    words = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(words.get("total_inactive_file", words.get("inactive_file", "0")))
