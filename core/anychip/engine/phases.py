"""How long each part of a start took, for one line of the log."""

from __future__ import annotations

import time


class Phases:
    """A watch that is read at the end of each part."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._parts: list[str] = []

    def end(self, part: str) -> None:
        """What was done since the part before, or since the watch was made."""
        now = time.monotonic()
        self._parts.append(f"{part} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return f"{self._last - self._began:.1f} s: {', '.join(self._parts)}"
