"""The middleware that every HTTP request passes first: request id, API key, rate limit."""

from __future__ import annotations

import hmac
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip_api.errors import ApiError
from anychip_api.page import PAGE, ROOT
from anychip_api.rate_limit import RateLimit

OPEN_PATHS = frozenset({"/health", "/metrics", "/ping", "/version"})
"""Routes that need no key, for probes and scrapers."""

HANDLER = "anychip.handler"
"""Key of ASGI's scope under which a route leaves its path as it is declared, for metrics."""

Observer = Callable[[str, str, int], None]
"""Called with method, declared path and status of each answer."""

_USABLE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SCHEME = b"bearer "


class Gate:
    """Gives each request an id, the client's if it sent one, returns it, and refuses what may not pass."""

    def __init__(
        self, app: ASGIApp, observe: Observer, api_keys: Sequence[str] = (), rate_limit: RateLimit | None = None
    ) -> None:
        self._app = app
        self._observe = observe
        self._keys = [key.encode() for key in api_keys]
        self._rate_limit = rate_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI; a refusal is answered here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        scope["request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
                self._observe(scope["method"], scope.get(HANDLER, "other"), message["status"])
            await send(message)

        refusal = self._refusal(scope, headers)
        await (refusal.response(route_path(scope)) if refusal else self._app)(scope, receive, send_with_id)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> ApiError | None:
        path = route_path(scope)
        if path in OPEN_PATHS or path == ROOT or path.startswith(PAGE):
            return None
        key = _key(headers)
        if self._keys and not any(hmac.compare_digest(key, one) for one in self._keys):
            return _unauthorized()
        if self._rate_limit is None or scope["method"] != "POST":
            return None
        client = key if self._keys else (scope.get("client") or ("",))[0].encode()
        wait = self._rate_limit.take(client, time.monotonic())
        return _too_many(wait) if wait else None


def route_path(scope: Scope) -> str:
    """The path of a request as routes are declared, whether or not a proxy has left its own before it."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path


def _key(headers: Mapping[bytes, bytes]) -> bytes:
    header = headers.get(b"authorization", b"")
    bearer = header[: len(_SCHEME)].lower() == _SCHEME
    return header[len(_SCHEME) :].strip() if bearer else headers.get(b"x-api-key", b"")


def _request_id(given: bytes | None) -> bytes:
    return given if given and _USABLE_ID.fullmatch(given) else uuid.uuid4().hex.encode()


def _unauthorized() -> ApiError:
    message = "The API key is missing or wrong. Send it in the header `Authorization: Bearer KEY`, or as `x-api-key`."
    headers = {"www-authenticate": "Bearer"}
    return ApiError(HTTPStatus.UNAUTHORIZED, message, code="invalid_api_key", headers=headers)


def _too_many(wait: float) -> ApiError:
    seconds = math.ceil(wait)
    message = f"Too many requests a minute. Send the next one in {seconds} s."
    headers = {"retry-after": str(seconds)}
    return ApiError(HTTPStatus.TOO_MANY_REQUESTS, message, code="rate_limit_exceeded", headers=headers)
