"""The engine's own process: `python -m anychip.engine.process FD [MODULE ...]`, FD being its end of a socket pair."""

from __future__ import annotations

import contextlib
import gc
import importlib
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence

from anychip.engine.channel import Channel, PeerGoneError
from anychip.engine.engine import Engine
from anychip.engine.messages import Failure, Progress, Shutdown, Start, decode_to_engine, encode
from anychip.errors import UserError
from anychip.log import logger, setup_logging

PROGRESS_SECONDS = 0.05
IDLE_SECONDS = 1.0
"""Quiet time after which all blocks are recounted."""
PAUSE_SECONDS = 0.02
"""Quiet time after which something is prepared for steps to come, and then again."""


def main(descriptor: int, modules: Sequence[str] = ()) -> int:
    """Serve one client until it goes away, having imported `modules` before it says anything; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what Ctrl-C ends
    channel = Channel(socket.socket(fileno=descriptor))
    gc.disable()  # importing torch makes objects by the hundred thousand, of which none is garbage
    for name in modules:
        with contextlib.suppress(ImportError):  # who needs it will say so
            importlib.import_module(name)
    try:
        _serve(channel)
    except PeerGoneError:
        return 0
    except UserError as error:
        return _fail(channel, Failure(error.message, error.remedy))
    except Exception as error:  # noqa: BLE001 (reported to the client, then the process ends)
        detail = traceback.format_exc()
        logger.error("the engine failed\n%s", detail)
        return _fail(channel, Failure(f"The engine failed: {type(error).__name__}: {error}", detail=detail))
    return 0


def _serve(channel: Channel) -> None:
    start = decode_to_engine(_first(channel))
    assert isinstance(start, Start), "the first message must be Start"
    setup_logging(start.config.log_level, start.config.log_format)
    engine = Engine(start.config, _Reporter(channel))
    gc.freeze()  # nor will be while the engine runs: collections skip them
    gc.enable()
    channel.send(encode(engine.info))
    try:
        _loop(engine, channel)
    finally:
        engine.close()


def _loop(engine: Engine, channel: Channel) -> None:
    checked, prepares = False, True
    while True:
        patience = PAUSE_SECONDS if prepares else (None if checked else IDLE_SECONDS)
        frames = channel.poll(0.0 if engine.has_work else patience)
        if not frames and not engine.has_work:  # part of a long message wakes us too
            if prepares:
                prepared = engine.prepare()
                prepares = prepared is not None
                if prepared is not None:
                    channel.send(encode(prepared))
            elif not checked:
                engine.check_integrity()
                engine.warm_up()
                checked = True
            continue
        for frame in frames:
            message = decode_to_engine(frame)
            if isinstance(message, Shutdown):
                return
            engine.handle(message)
        for outputs in engine.step():
            channel.send(encode(outputs))
        checked = False


def _first(channel: Channel) -> bytes:
    frames: list[bytes] = []
    while not frames:
        frames = channel.poll(None)
    assert len(frames) == 1, "nothing may follow Start before the engine is ready"
    return frames[0]


class _Reporter:
    """Sends progress, but not more often than anybody looks."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._last = channel, 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total or now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._channel.send(encode(Progress(what, done, total)))


def _fail(channel: Channel, failure: Failure) -> int:
    try:
        channel.send(encode(failure))
        channel.drain()
    except PeerGoneError:
        logger.error("%s", failure.message)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
