"""Running pieces of work in forked processes. The process that forks must have a single thread."""

from __future__ import annotations

import os


class Forks:
    """Forked processes, at most `count` at once."""

    def __init__(self, count: int) -> None:
        self.begun = self.done = 0
        """Processes forked so far, and those of them that ended with status 0."""
        self._count = count
        self._running: set[int] = set()

    def fork(self) -> bool:
        """Fork once fewer than `count` run. True in the new process, which has to end by itself; False in this one."""
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
