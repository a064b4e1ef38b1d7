"""How many threads of the host this process may keep busy."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_processors(root: Path = Path("/")) -> int:
    """Processors of the affinity mask, or fewer if a control group's quota allows less."""
    processors = len(os.sched_getaffinity(0))
    quotas = [quota for quota in (_quota_v2(root), _quota_v1(root)) if quota is not None]
    return max(1, min([processors, *(math.ceil(quota) for quota in quotas)]))


def _quota_v2(root: Path) -> float | None:
    path = root / "sys/fs/cgroup/cpu.max"
    words = path.read_text().split() if path.is_file() else ["max", "1"]
    return None if words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(root: Path) -> float | None:
    folder = root / "sys/fs/cgroup/cpu"
    quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if not (quota.is_file() and period.is_file()):
        return None
    allowed = int(quota.read_text())
    return None if allowed < 0 else allowed / int(period.read_text())
