"""The engine's own process: `python -m anychip.engine.process FD`, FD being its end of a socket pair."""

from __future__ import annotations

import gc
import signal
import socket
import sys
import time
import traceback

from anychip.engine.channel import Channel, PeerGoneError
from anychip.engine.engine import Engine
from anychip.engine.messages import Failure, Open, Progress, Shutdown, Start, ToEngine, decode_to_engine, encode
from anychip.engine.opening import OpenedDevice, open_device
from anychip.errors import UserError
from anychip.log import logger, setup_logging

PROGRESS_SECONDS = 0.05
IDLE_SECONDS = 1.0
"""Quiet time after which all blocks are recounted."""
PAUSE_SECONDS = 0.02
"""Quiet time after which something is prepared for steps to come, and then again."""


def main(descriptor: int) -> int:
    """Serve one client until it goes away; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what Ctrl-C ends
    channel = Channel(socket.socket(fileno=descriptor))
    gc.disable()  # importing torch makes objects by the hundred thousand, of which none is garbage
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
    early, start = _started(channel)
    engine = Engine(start.config, _Reporter(channel), early)
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


def _started(channel: Channel) -> tuple[OpenedDevice | None, Start]:
    """What tells the model, and the device that was opened before, if that was asked for."""
    frames: list[bytes] = []
    early, message = None, _next(channel, frames)
    if isinstance(message, Open):
        setup_logging(message.config.log_level, message.config.log_format)
        try:
            early = open_device(message.config)
        finally:
            message = _next(channel, frames)  # a client that has not sent it yet does not listen either
    assert isinstance(message, Start), "Start comes first, or after Open"
    assert not frames, "nothing may follow Start before the engine is ready"
    setup_logging(message.config.log_level, message.config.log_format)
    return early, message


def _next(channel: Channel, frames: list[bytes]) -> ToEngine:
    """The first message of those in `frames`, or to come."""
    while not frames:
        frames += channel.poll(None)
    message: ToEngine = decode_to_engine(frames.pop(0))
    return message


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
    sys.exit(main(int(sys.argv[1])))
