"""How a reader reports what it has read."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


def report(progress: Progress | None, done: int, total: int) -> None:
    """Call `progress` if there is one."""
    if progress is not None:
        progress(done, total)
