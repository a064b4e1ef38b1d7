"""A small HTTP client that takes little of the processors it shares with the server it measures."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools

from anychip.errors import UserError

Sink = Callable[[bytes], None]


class ConnectionLostError(Exception):
    """The server closed the connection before the end of its answer."""


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.usable = True
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: Sink = _drop
        self._done: asyncio.Future[int] | None = None

    async def request(self, data: bytes, sink: Sink) -> int:
        """Send a request; its body goes to `sink`, the status comes back."""
        assert self._transport is not None, "it is connected"
        self._sink = sink
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._done

    def close(self) -> None:
        """Hang up."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
            self._fail()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._sink(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._done is not None and not self._done.done():
            self._done.set_result(self._parser.get_status_code())

    def _fail(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionLostError("The server closed the connection."))


def _drop(data: bytes) -> None:
    """Nobody asked for this."""


class HttpClient:
    """Requests to one server, over as many connections as are open at a time."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"{url!r} is no address of a server.", "Give one such as http://127.0.0.1:8000.")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._head = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n"
        if api_key:
            self._head += f"Authorization: Bearer {api_key}\r\n"
        self._idle: list[_Connection] = []

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        return await self.whole("GET", path, b"")

    async def whole(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of any request."""
        parts: list[bytes] = []
        status = await self.stream(method, path, body, parts.append)
        return status, b"".join(parts)

    async def stream(self, method: str, path: str, body: bytes, sink: Sink) -> int:
        """Send a request and pass its answer's body on as it comes; the status.

        Raises OSError when there is no connection, `ConnectionLostError` when it breaks.
        """
        head = f"{method} {self._base}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        connection = await self._connect()
        try:
            status = await connection.request(head.encode() + body, sink)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._idle.append(connection)
        return status

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._idle:
            connection.close()

    async def _connect(self) -> _Connection:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return connection
