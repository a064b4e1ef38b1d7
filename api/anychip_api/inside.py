"""Handlers called: by the framework for a request over HTTP, and by the server itself for a line of a batch."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from anychip.log import logger
from anychip_api.errors import CLIENT_GONE, as_api_error, internal_error
from anychip_api.service import Handler, Service


async def answer(service: Service, path: str, handler: Handler, request: Request) -> Response:
    """The response of a path's handler, or its failure in the shape of that path."""
    try:
        return await handler(service, request)
    except ClientDisconnect:
        return Response(status_code=CLIENT_GONE)
    except Exception as error:  # noqa: BLE001 -- the client is told, and a bug is logged
        known = as_api_error(error)
        if known is None:
            logger.exception("A request failed.")
        return (known or internal_error()).response(path)


async def ask(service: Service, path: str, body: bytes, request_id: str) -> Response:
    """What a POST of `body` to `path` is answered. Cancelling it aborts what it started."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "request_id": request_id,
    }
    return await answer(service, path, service.handlers[path], Request(scope, _Whole(body)))


class _Whole:
    """Brings a body at once; then nobody hangs up."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message
