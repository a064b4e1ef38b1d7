"""`serve`: one engine behind one listening socket, from start to a graceful end.

The web framework is imported while the engine's process loads the model, so that the server is ready early.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import uvloop

from anychip import AsyncEngine
from anychip.config import EngineConfig
from anychip.log import logger
from anychip_api.listen import address_of, bind, listen, raise_file_limit
from anychip_api.options import ServerOptions
from anychip_api.parsers.registry import check_parser_names
from anychip_api.tls import tls_context

if TYPE_CHECKING:
    from anychip.engine.spawn import EngineProcess
    from anychip_api.app import Extension
    from anychip_api.web import WebServer

Progress = Callable[[str, int, int], None]

EXIT_STOPPED = 0
EXIT_DEAD = 1


def serve(
    config: EngineConfig,
    options: ServerOptions,
    progress: Progress | None = None,
    extensions: Iterable[Extension] = (),
    process: EngineProcess | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, or until the engine's process ends; returns the exit code.

    `process` is the engine's, where the caller has started it already.
    Raises `UserError` when the port cannot be had or the engine cannot start.
    """
    _check(config, options)
    raise_file_limit()
    with (
        closing(bind(options.host, options.port)) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as run,
    ):
        return run.run(_run(AsyncEngine.create(config, progress, process), options, listener, tuple(extensions)))


def _check(config: EngineConfig, options: ServerOptions) -> None:
    """What is read again later, for a mistake to be told before anything loads."""

    def plugins() -> Mapping[tuple[str, str], str]:
        from anychip.plugin.registry import Registry

        return Registry(config.plugins).parsers

    tls_context(options)
    check_parser_names(options.tool_call_parser, options.reasoning_parser, plugins)


async def _run(
    starting: Coroutine[Any, Any, AsyncEngine],
    options: ServerOptions,
    listener: socket.socket,
    extensions: tuple[Extension, ...],
) -> int:
    stop = _Stop()
    loading = asyncio.create_task(starting)
    await asyncio.sleep(0)  # the engine's process starts before this one imports the web framework
    web = await asyncio.to_thread(_import_web)
    if not await stop.before(loading):
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        return EXIT_STOPPED
    engine = loading.result()
    try:
        server = web(engine, options, extensions)
        return await _serve(server, engine, options, listener, stop)
    finally:
        await engine.close()


def _import_web() -> type[WebServer]:
    from anychip_api.web import WebServer

    return WebServer


async def _serve(
    server: WebServer, engine: AsyncEngine, options: ServerOptions, listener: socket.socket, stop: _Stop
) -> int:
    listen(listener)
    scheme = "https" if options.ssl_certfile else "http"
    logger.info("Serving %s at %s://%s%s", server.model_name, scheme, address_of(listener), options.root_path)
    serving = asyncio.create_task(server.run(listener))
    dead = asyncio.create_task(engine.wait_dead())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, dead, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if engine.dead:
        logger.error("The engine's process has ended; every open request ends with an error.")
    elif stop.asked:
        logger.info("Stopping; open requests may take %g s to finish.", options.shutdown_timeout)
    stopping.cancel()
    await server.finish(serving, 0 if engine.dead else options.shutdown_timeout, stop)
    dead.cancel()
    if not engine.dead:
        return EXIT_STOPPED
    await _say_how_it_died(engine)
    return EXIT_DEAD


async def _say_how_it_died(engine: AsyncEngine) -> None:
    code = await engine.exit_code()
    if code < 0:
        why = ", as the system does where memory is short" if -code == signal.SIGKILL else ""
        logger.error("The engine's process was ended by %s%s.", signal.Signals(-code).name, why)


class _Stop:
    """SIGTERM and SIGINT: the first asks to finish, the second to hurry."""

    def __init__(self) -> None:
        self._signals = 0
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self._signals > 0

    async def wait(self) -> None:
        """Return at the next signal, or at once if one is unread."""
        await self._changed.wait()
        self._changed.clear()

    async def before(self, task: asyncio.Task[AsyncEngine]) -> bool:
        """Whether `task` ended before a signal came."""
        waiting = asyncio.create_task(self._changed.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return task.done()

    def _on_signal(self) -> None:
        self._signals += 1
        self._changed.set()
