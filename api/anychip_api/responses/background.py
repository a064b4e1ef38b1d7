"""A response that nobody waits for: it goes on without a connection, and may be read again from any event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from anychip_api.responses.answer import ResponseAnswer

_END = b"\n\n"


class Background:
    """Runs an answer to its end, whoever listens, and keeps its events."""

    def __init__(self, answer: ResponseAnswer) -> None:
        self.answer = answer
        self._events: list[bytes] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def size(self) -> int:
        """Bytes of its events."""
        return sum(map(len, self._events))

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self._task.done()

    def cancel(self) -> None:
        """Abort the answer, unless it is over; events so far are kept."""
        if not self.over:
            self._task.cancel()
            self.answer.generation.abort()

    async def follow(self, start: int) -> AsyncGenerator[bytes]:
        """Its events from number `start` on, until the last one."""
        while True:
            self._changed.clear()
            if start < len(self._events):
                data = b"".join(self._events[start:])
                start = len(self._events)
                yield data
            elif self.over:
                return
            else:
                await self._changed.wait()

    async def _run(self) -> None:
        try:
            async for data in self.answer.stream(_nobody_leaves):
                self._events += [one + _END for one in data.split(_END) if one]
                self._changed.set()
        finally:
            # after this task has ended, so that who follows finds it over
            asyncio.get_running_loop().call_soon(self._changed.set)


async def _nobody_leaves() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("it waits for ever")
