"""Uvicorn around the application, without its signal handling."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import uvicorn

from anychip.log import logger
from anychip_api.app import Extension, create_app
from anychip_api.connection import connections
from anychip_api.options import ServerOptions
from anychip_api.tls import tls_context

if TYPE_CHECKING:
    from anychip import AsyncEngine

_LAST_WRITES = 5
"""Seconds that aborted requests get to send their error, and traces to be sent."""


class StopSignal(Protocol):
    """Something that may happen while the server stops."""

    async def wait(self) -> None:
        """Return when it happens."""


class WebServer:
    """The HTTP server of one engine."""

    def __init__(self, engine: AsyncEngine, options: ServerOptions, extensions: Iterable[Extension] = ()) -> None:
        tls = tls_context(options)
        app = create_app(engine, options, extensions)
        self._service = app.service
        config = uvicorn.Config(
            app,
            loop="none",
            http=connections(options.client_timeout),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=options.keep_alive_timeout,
            ssl_context_factory=None if tls is None else lambda config, default: tls,
        )
        _log_as_we_do("uvicorn")
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
        self._service.responses.close()
        await self._service.batches.close()
        await asyncio.wait({asyncio.create_task(asyncio.to_thread(self._service.close))}, timeout=_LAST_WRITES)


def _log_as_we_do(library: str) -> None:
    """A library's warnings go where our messages go."""
    theirs = logging.getLogger(library)
    theirs.handlers[:] = logger.handlers
    theirs.propagate = False
    theirs.setLevel(logging.WARNING)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to `serve`."""
        yield
