"""Several streams of one HTTP request read as one; what is ready at the same time comes together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

from anychip.engine.outputs import Delta

Deltas = list[tuple[int, Delta]]
"""What choices gained, as (index of the stream, delta of one of its choices)."""


async def merged(streams: Sequence[AsyncIterable[Delta]], single: bool) -> AsyncGenerator[Deltas]:
    """Yield what the streams bring until all have ended; raises what any of them raises.

    `single`: there is one stream of one choice, so its deltas can be passed on one by one.
    """
    if single:
        async for delta in streams[0]:
            yield [(0, delta)]
        return
    merge = _Merge(streams)
    try:
        while ready := await merge.next():
            yield ready
    finally:
        await merge.close()


class _Merge:
    """One task a stream fills `_ready`. The consumer wakes after all tasks that the engine's message woke have run."""

    def __init__(self, streams: Sequence[AsyncIterable[Delta]]) -> None:
        self._ready: Deltas = []
        self._wake = asyncio.Event()
        self._tasks = [asyncio.create_task(self._pump(index, stream)) for index, stream in enumerate(streams)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def next(self) -> Deltas:
        """Wait for deltas; returns all that came since the last call, and nothing once all streams have ended."""
        while not self._ready:
            for task in self._tasks:
                if task.done():
                    task.result()
            if all(task.done() for task in self._tasks):
                break
            await self._wake.wait()
            self._wake.clear()
        ready, self._ready = self._ready, []
        return ready

    async def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(self, index: int, stream: AsyncIterable[Delta]) -> None:
        async for delta in stream:
            self._ready.append((index, delta))
            self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._wake.set()
