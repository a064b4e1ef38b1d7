"""The queue of requests that hold no row: one heap for both policies."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from anychip.engine.request import Request


class WaitingQueue:
    """Requests by (priority, arrival). One that was preempted comes back before all that came after it."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], Request]] = []
        self._aborted = 0

    def __len__(self) -> int:
        return len(self._heap) - self._aborted

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in self._heap if not request.aborted)

    def push(self, request: Request) -> None:
        """Add a request."""
        heapq.heappush(self._heap, (request.key, request))

    def pop(self) -> Request:
        """The request that is next; the caller has checked there is one."""
        while True:
            request = heapq.heappop(self._heap)[1]
            if not request.aborted:
                return request
            self._aborted -= 1

    def abort(self, request: Request) -> None:
        """Forget a request that is in the queue."""
        request.aborted = True
        self._aborted += 1
