"""The control groups that limit this process, of versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def control_groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """(folder, version) of each group of ours that may limit `controller`, innermost first.

    Folders need not exist: a container sees its own group at the top, under another path than it has outside.
    """
    listing = root / "proc/self/cgroup"
    lines = listing.read_text().splitlines() if listing.exists() else ["0::/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            base, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield base / part, version
