"""Framed messages over a socket pair, engine side: reads block only when the engine is idle, writes never do.

A frame is its length as four little-endian bytes, then MessagePack. A peer that died is an end of file at once.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20


def framed(message: bytes) -> bytes:
    """A message with its length in front."""
    return LENGTH.pack(len(message)) + message


class PeerGoneError(Exception):
    """The other side closed the channel or died."""


class FrameBuffer:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that `data` completes."""
        self._data += data
        start = 0
        while len(self._data) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data, start)
            end = start + LENGTH.size + length
            if len(self._data) < end:
                break
            yield bytes(self._data[start + LENGTH.size : end])
            start = end
        if start:
            del self._data[:start]


class Channel:
    """The engine's end."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._frames = FrameBuffer()
        self._unsent = bytearray()

    def send(self, message: bytes) -> None:
        """Queue a message and write as much as the peer takes now. Raises `PeerGoneError`."""
        self._unsent += framed(message)
        self._flush()

    def poll(self, timeout: float | None) -> list[bytes]:
        """Messages that came, after at most `timeout` seconds (None waits for one). Raises `PeerGoneError`."""
        while True:
            writing = [self._socket] if self._unsent else []
            readable, writable, _ = select.select([self._socket], writing, [], timeout)
            if writable:
                self._flush()
            if readable:
                return list(self._frames.feed(self._receive()))
            if timeout is not None:
                return []

    def drain(self) -> None:
        """Write what is left, waiting for the peer."""
        if not self._unsent:
            return  # the peer may have read it all and gone
        self._socket.setblocking(True)
        try:
            self._socket.sendall(self._unsent)
        except OSError:
            raise PeerGoneError from None
        self._unsent.clear()

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            raise PeerGoneError
        return data

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            raise PeerGoneError from None
        del self._unsent[:sent]
