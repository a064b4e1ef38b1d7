"""How many threads of the host this process may keep busy."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from anychip.runner.control_groups import control_groups


def available_processors(root: Path = Path("/")) -> int:
    """Physical cores of the affinity mask, or fewer if a control group's quota allows less.

    A core's second hardware thread adds nothing to products that keep its arithmetic busy.
    """
    cores = {_core(root, number) for number in os.sched_getaffinity(0)}
    return max(1, min([len(cores), *(math.ceil(quota) for quota in _quotas(root))]))


def _core(root: Path, processor: int) -> str:
    """The hardware threads that share a core with a processor; itself where the system does not say."""
    path = root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    return path.read_text().strip() if path.is_file() else str(processor)


def _quotas(root: Path) -> Iterator[float]:
    """Processors' worth of time that each of our control groups allows."""
    for folder, version in control_groups(root, "cpu"):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _words(folder / name)]
        if len(words) == 2 and words[0].isdigit():  # neither `max` nor -1
            yield int(words[0]) / int(words[1])


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []
