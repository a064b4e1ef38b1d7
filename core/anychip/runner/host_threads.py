"""Which processors of the host compute, and on which of them each thread stays."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from anychip.errors import UserError
from anychip.runner.control_groups import control_groups

LEFT_TO_SERVER_FROM = 8
"""Cores from which one is left to the server's process."""
_SYSTEM = "sys/devices/system"


@dataclass(frozen=True, slots=True)
class HostThreads:
    """One thread for each of `processors`, which lie in different cores, those of a NUMA node together."""

    processors: tuple[int, ...]
    bound: bool
    """Whether each stays on its own processor."""


def choose_threads(binding: str, count: int | None, allowed: Collection[int], root: Path = Path("/")) -> HostThreads:
    """Where to compute, among the `allowed` processors.

    `binding` is `none`, a list of processors such as `0-3,8`, or `auto`: threads are bound where memory is nearer to
    some cores than to others and nobody rations our time; with fewer cores or a quota, the system moves them better
    past what else runs. `count` is the number of threads, or None. Raises `UserError` for processors we may not use.
    """
    listed = _listed(binding, allowed)
    nodes = numa_nodes(root)
    cores = physical_cores(listed or allowed, nodes, root)
    if count is None:
        count = _useful(len(cores), binding, root)
    several_nodes = len({nodes.get(core, 0) for core in cores}) > 1
    rationed = min(_quotas(root), default=math.inf) < len(cores)
    bound = bool(listed) or (binding == "auto" and several_nodes and not rationed and count <= len(cores))
    return HostThreads(tuple(cores[number % len(cores)] for number in range(count)), bound)


def physical_cores(processors: Collection[int], nodes: dict[int, int], root: Path = Path("/")) -> list[int]:
    """One processor of each core, nodes with the most cores first.

    A core's second hardware thread adds nothing to products that keep its arithmetic busy.
    """
    cores: dict[str, int] = {}
    for number in sorted(processors):
        path = root / f"{_SYSTEM}/cpu/cpu{number}/topology/thread_siblings_list"
        cores.setdefault(path.read_text().strip() if path.is_file() else str(number), number)
    chosen = list(cores.values())
    sizes: dict[int, int] = {}
    for number in chosen:
        sizes[nodes.get(number, 0)] = sizes.get(nodes.get(number, 0), 0) + 1
    return sorted(chosen, key=lambda number: (-sizes[nodes.get(number, 0)], nodes.get(number, 0), number))


def numa_nodes(root: Path = Path("/")) -> dict[int, int]:
    """The node of each processor; empty where the system does not say."""
    found = {}
    for folder in sorted((root / _SYSTEM / "node").glob("node[0-9]*")):
        for processor in parse_processors((folder / "cpulist").read_text().strip()):
            found[processor] = int(folder.name[4:])
    return found


def parse_processors(text: str) -> tuple[int, ...]:
    """`0-3,8` as (0, 1, 2, 3, 8), as the kernel writes lists. Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(part)
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(numbers))


def bind_threads(threads: HostThreads, workers: Collection[int]) -> None:
    """Keep each of the pool's `workers` (thread ids) on its processor.

    The first processor is for the calling thread, which is left free: threads that it starts would inherit its mask.
    """
    for processor, worker in zip(threads.processors[1:], sorted(workers), strict=False):
        os.sched_setaffinity(worker, {processor})


def own_threads() -> set[int]:
    """Ids of this process's threads."""
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def _listed(binding: str, allowed: Collection[int]) -> tuple[int, ...]:
    if binding in ("auto", "none"):
        return ()
    try:
        listed = parse_processors(binding)
    except ValueError:
        listed = ()
    if not listed:
        raise UserError(f"--threads-bind {binding!r} is no list of processors.", "Use auto, none, or one like 0-3,8.")
    if missing := sorted(set(listed) - set(allowed)):
        raise UserError(
            f"This process may not use processor {missing[0]}.", f"It may use {', '.join(map(str, sorted(allowed)))}."
        )
    return listed


def _useful(cores: int, binding: str, root: Path) -> int:
    """Threads for that many cores: no more than quotas allow, and where there are many, one core less."""
    quota = min(_quotas(root), default=math.inf)
    if quota < cores:
        return max(1, math.ceil(quota))
    return cores - 1 if cores >= LEFT_TO_SERVER_FROM and binding in ("auto", "none") else cores


def _quotas(root: Path) -> Iterator[float]:
    """Processors' worth of time that each of our control groups allows."""
    for folder, version in control_groups(root, "cpu"):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _words(folder / name)]
        if len(words) == 2 and words[0].isdigit():  # neither `max` nor -1
            yield int(words[0]) / int(words[1])


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []
