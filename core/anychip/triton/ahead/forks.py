"""Processes forked from one that has a single thread, for one piece of work each."""

from __future__ import annotations

import os


class Forks:
    """At most `count` of them at once."""

    def __init__(self, count: int) -> None:
        self.begun = self.done = 0
        """How many there were, and how many of them ended well so far."""
        self._count = count
        self._running: set[int] = set()

    def fork(self) -> bool:
        """Whether this is the new process, which has to end by itself; waits while there are too many."""
        while len(self._running) >= self._count:
            self._join()
        child = os.fork()
        if child:
            self.begun += 1
            self._running.add(child)
        return not child

    def finish(self) -> None:
        """Wait for all of them."""
        while self._running:
            self._join()

    def _join(self) -> None:
        child, status = os.wait()
        if child in self._running:
            self._running.remove(child)
            self.done += not status
