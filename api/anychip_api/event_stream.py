"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

_LINE_ENDS = tuple((end.encode(), rf"\u{ord(end):04x}".encode()) for end in "\u0085\u2028\u2029")
"""Characters that JSON leaves alone and many clients take for the end of a line, with their escapes."""


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """One event, its data on one line however the client finds lines."""
    encoded = msgspec.json.encode(data)
    for end, escape in _LINE_ENDS:
        encoded = encoded.replace(end, escape)
    head = f"event: {name}\ndata: " if name else "data: "
    return head.encode() + encoded + b"\n\n"


class EventStream(Response):
    """Sends what an iterator brings, one write an item; whoever brings it watches for the client's leaving."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], headers: Mapping[str, str], on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._events = events
        self.status_code = 200
        self.background = None
        self.init_headers({**_HEADERS, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, so that the client knows that it was accepted, then each event."""
        try:
            async with aclosing(self._events) as events:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async for data in events:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._on_end()
