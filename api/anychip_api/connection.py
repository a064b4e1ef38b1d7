"""One connection: uvicorn's protocol with limits on how long a client may keep it for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from anychip_api.errors import ApiError
from anychip_api.parser import Parser

HEAD_BYTES = 64 * 1024
"""Longest head of a request."""
BODY_STEP = 16 * 1024
"""A body has to bring this much within the client's timeout."""


class Connection(HttpToolsProtocol):
    """Closes a connection whose client is too slow to send a request's head, its body, or to read the answer.

    A client that shuts down its sending side counts as gone, as one that closes the socket looks the same.
    """

    client_timeout: float
    parser: Parser
    _deadline: asyncio.TimerHandle | None = None
    _received = 0
    _in_head = True
    _cycles: Sequence[RequestResponseCycle] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came; its first head has to follow."""
        super().connection_made(transport)
        self.parser = Parser(self)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was sent away."""
        self._relax()
        for cycle in self._cycles:  # several, where the client has sent the next request before the answer
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: a head may not be long, and a body may not dribble."""
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._received > HEAD_BYTES:
            message = f"The request's head is longer than {HEAD_BYTES} bytes. Send fewer or shorter headers."
            self._refuse(ApiError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message))
        elif self._begins() or self._goes_on():
            self._expect()

    def on_headers_complete(self) -> None:
        """The head is there; the body has to follow."""
        if self.parser.offered:
            return
        self._in_head = False
        self._expect()
        super().on_headers_complete()
        self._cycles = [cycle for cycle in (*self._cycles, self.cycle) if not cycle.response_complete]

    def on_message_complete(self) -> None:
        """The request is there; the next one may take its time to begin."""
        if self.parser.offered:
            return
        self._in_head = True
        self._relax()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read; it has to go on."""
        super().pause_writing()
        self._expect()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._relax()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused in the shape of every other error."""
        self._refuse(ApiError(HTTPStatus.BAD_REQUEST, f"{msg} Send HTTP/1.1."))

    def _begins(self) -> bool:
        return self._in_head and self._received > 0 and self._deadline is None

    def _goes_on(self) -> bool:
        return not self._in_head and self._received >= BODY_STEP

    def _refuse(self, error: ApiError) -> None:
        body = msgspec.json.encode(error.body())
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _expect(self) -> None:
        """The client has its time for the next thing, from now on."""
        self._relax()
        self._deadline = self.loop.call_later(self.client_timeout, self._give_up)

    def _relax(self) -> None:
        self._received = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self._in_head and not self.cycle.response_started:
            message = (
                "The request's body did not come in time. Send it faster, or start the server with --client-timeout."
            )
            self._refuse(ApiError(HTTPStatus.REQUEST_TIMEOUT, message))
        else:
            self.transport.abort()


def connections(timeout: float) -> type[Connection]:
    """The protocol class for uvicorn, which makes one object of it a connection."""

    class Timed(Connection):
        client_timeout = timeout

    return Timed
