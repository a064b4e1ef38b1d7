"""Many lines at a time, each asked as a request over HTTP would be."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from anychip_api.batch.lines import Line, check_body
from anychip_api.batch.results import Result, answered
from anychip_api.errors import ApiError
from anychip_api.inside import ask
from anychip_api.service import Service

_BUSY_PAUSE = 0.5
"""Seconds until a line is sent again that the server had no room for."""

Turn = AbstractAsyncContextManager[None]


async def run_lines(
    service: Service, lines: Iterator[Line], workers: int, turn: Turn, take: Callable[[Result], None]
) -> None:
    """Hand each line's result to `take` as it comes, in any order. `turn` is held while a line is asked.

    Cancelling it aborts the lines under way. Raises what `take` and reading the lines raise, in a group.
    """
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_work(service, lines, turn, take))


async def _work(service: Service, lines: Iterator[Line], turn: Turn, take: Callable[[Result], None]) -> None:
    while True:
        async with turn:
            line = next(lines, None)
            if line is None:
                return
            take(await _answer(service, line))


async def _answer(service: Service, line: Line) -> Result:
    request_id = uuid.uuid4().hex
    try:
        check_body(line.body)
    except ApiError as error:
        return answered(line.custom_id, error.status, request_id, bytes(error.response(line.url).body))
    while True:
        response = await ask(service, line.url, bytes(line.body), request_id)
        if response.status_code != HTTPStatus.TOO_MANY_REQUESTS:
            return answered(line.custom_id, response.status_code, request_id, bytes(response.body))
        await asyncio.sleep(_BUSY_PAUSE)
