"""Several streams of one HTTP request as one, everything that is ready at a time together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

from anychip.engine.outputs import Delta

Batch = list[tuple[int, Delta]]
"""(which stream, what one of its choices gained)."""


async def merged(streams: Sequence[AsyncIterable[Delta]], single: bool) -> AsyncGenerator[Batch]:
    """What the streams bring, until all have ended; raises what any of them raises.

    `single` says that there is one stream of one choice, of which nothing has to be gathered.
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
        self._ready: Batch = []
        self._wake = asyncio.Event()
        self._tasks = [asyncio.create_task(self._pump(index, stream)) for index, stream in enumerate(streams)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def next(self) -> Batch:
        """What has come since the last call, waiting for something; empty at the end."""
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
