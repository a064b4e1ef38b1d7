"""Uvicorn around the application, without its signal handling."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import uvicorn

from anychip.log import logger
from anychip_api.app import Extension, create_app
from anychip_api.options import ServerOptions

if TYPE_CHECKING:
    from anychip import AsyncEngine

_LAST_WRITES = 5
"""Seconds that aborted requests get to send their error."""


class StopSignal(Protocol):
    """Something that may happen while the server stops."""

    async def wait(self) -> None:
        """Return when it happens."""


class WebServer:
    """The HTTP server of one engine."""

    def __init__(self, engine: AsyncEngine, options: ServerOptions, extensions: Iterable[Extension] = ()) -> None:
        app = create_app(engine, options, extensions)
        self._service = app.service
        config = uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=options.keep_alive_timeout,
        )
        self._server = _Uvicorn(config)

    @property
    def model_name(self) -> str:
        """The name that answers carry."""
        return self._service.names[0]

    async def run(self, listener: socket.socket) -> None:
        """Take connections until `finish`."""
        await self._server.serve(sockets=[listener])

    async def finish(self, serving: asyncio.Task[None], timeout: float, hurry: StopSignal) -> None:
        """Stop accepting, let open requests finish for `timeout` seconds or until `hurry`, then abort them."""
        self._server.should_exit = True
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait({serving, hurried}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not serving.done():
            count = self._service.abort_all()
            if count:
                logger.warning("Aborted %d requests that were still open.", count)
            await asyncio.wait({serving}, timeout=_LAST_WRITES)
        if not serving.done():
            self._server.force_exit = True
        await serving


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to `serve`."""
        yield
