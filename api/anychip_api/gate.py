"""What every HTTP request passes first: its id, and the API key."""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip_api.errors import ApiError

OPEN_PATHS = frozenset({"/health", "/metrics", "/version"})
"""Routes that need no key, for probes and scrapers."""

_USABLE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SCHEME = b"bearer "


class Gate:
    """Gives each request an id, the client's if it sent one, returns it, and refuses a request without a valid key."""

    def __init__(self, app: ASGIApp, api_keys: Sequence[str] = ()) -> None:
        self._app = app
        self._keys = [key.encode() for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        scope["request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        if self._keys and scope["path"] not in OPEN_PATHS and not self._admits(headers):
            await _refusal(scope["path"])(scope, receive, send_with_id)
        else:
            await self._app(scope, receive, send_with_id)

    def _admits(self, headers: Mapping[bytes, bytes]) -> bool:
        header = headers.get(b"authorization", b"")
        bearer = header[: len(_SCHEME)].lower() == _SCHEME
        given = header[len(_SCHEME) :].strip() if bearer else headers.get(b"x-api-key", b"")
        return any(hmac.compare_digest(given, key) for key in self._keys)


def _request_id(given: bytes | None) -> bytes:
    return given if given and _USABLE_ID.fullmatch(given) else uuid.uuid4().hex.encode()


def _refusal(path: str) -> ASGIApp:
    message = "The API key is missing or wrong. Send it in the header `Authorization: Bearer KEY`, or as `x-api-key`."
    error = ApiError(HTTPStatus.UNAUTHORIZED, message, code="invalid_api_key")
    return error.response(path, {"www-authenticate": "Bearer"})
