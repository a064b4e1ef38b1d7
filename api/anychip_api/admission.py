"""Whether the queue has room for one more request."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING

from anychip.engine.messages import StepOutputs
from anychip_api.errors import ApiError

if TYPE_CHECKING:
    from anychip import AsyncEngine

_RECENT = 0.1
"""Weight of the newest wait in the mean of waits."""


class Admission:
    """Refuses requests with status 429 while too many sequences wait; `max_waiting` None refuses none."""

    def __init__(self, engine: AsyncEngine, max_waiting: int | None) -> None:
        self._engine = engine
        self._max_waiting = max_waiting
        self._wait = 0.0
        if max_waiting is not None:
            engine.add_listener(self._on_step)

    def check(self, sequences: int) -> None:
        """Raise `ApiError` with status 429 if `sequences` more would make the queue too long."""
        if self._max_waiting is None or self._queue(sequences) <= self._max_waiting:
            return
        seconds = min(max(1, math.ceil(self._wait)), 60)
        message = f"The server has as many requests as it may queue (--max-waiting). Send it again in {seconds} s."
        headers = {"retry-after": str(seconds)}
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, message, code="queue_full", headers=headers)

    def _queue(self, more: int) -> int:
        """Sequences that would wait: beyond the batch, or as many as the engine said last where memory is short."""
        engine = self._engine
        beyond = engine.open_sequences + more - engine.info.max_num_seqs
        waiting = engine.stats.waiting + more if engine.stats.waiting else 0
        return max(beyond, waiting)

    def _on_step(self, outputs: StepOutputs) -> None:
        for scheduled in outputs.scheduled:
            self._wait += _RECENT * (scheduled.waited - self._wait)
