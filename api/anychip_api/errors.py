"""Every failure in the shape that its route's clients read: Anthropic's for theirs, OpenAI's for all others."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response

from anychip.errors import EngineDeadError, RequestError, UserError

ANTHROPIC = "/v1/messages"
"""What the paths of Anthropic's routes begin with."""

CLIENT_GONE = 499
"""What nginx calls it where the client has left; nobody reads the answer, but it is counted."""

JSON = "application/json"
_SHOWN_PROBLEMS = 3
_ANTHROPIC_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}


class ApiError(Exception):
    """A failure with its HTTP status; `code` is what programs compare with."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self, path: str = "") -> dict[str, Any]:
        """The error object of the protocol that `path` belongs to."""
        if path.startswith(ANTHROPIC):
            kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self._is_users else "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        kind = "invalid_request_error" if self._is_users else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str = "", headers: Mapping[str, str] | None = None) -> Response:
        """The answer to a request to `path` that failed so."""
        return Response(msgspec.json.encode(self.body(path)), self.status, {**self.headers, **(headers or {})}, JSON)

    @property
    def _is_users(self) -> bool:
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR


def engine_dead(message: str = "") -> ApiError:
    """The engine's process has ended."""
    text = message or "The engine's process has ended."
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{text} The server has to be started again.", code="engine_dead")


def as_api_error(error: Exception) -> ApiError | None:
    """What a client is told about an exception; None for a bug of ours."""
    match error:
        case ApiError():
            return error
        case RequestError():
            return ApiError(HTTPStatus.BAD_REQUEST, str(error), error.param)
        case UserError():
            return ApiError(HTTPStatus.BAD_REQUEST, str(error))
        case EngineDeadError():
            return engine_dead(str(error))
        case RequestValidationError() | ValidationError():
            return as_api_error(invalid_fields(error))
        case HTTPException():
            return _of_framework(error)
    return None


def internal_error() -> ApiError:
    """A bug of ours: the log has the traceback."""
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error; the server's log says more.")


def invalid_fields(error: RequestValidationError | ValidationError) -> RequestError:
    """Which fields of a request have a wrong type, `param` being the first of them."""
    problems: list[ErrorDetails] = list(error.errors())
    if problems[0]["type"] == "json_invalid":
        reason = problems[0]["msg"].removeprefix("Invalid JSON: ")
        return RequestError(f"The request body is not valid JSON: {reason}.", remedy="Send one JSON object.")
    if not problems[0]["loc"]:
        return RequestError("The request body is not a JSON object.", remedy="Send one JSON object.")
    texts = dict.fromkeys(_problem(problem) for problem in problems)
    return RequestError(" ".join(list(texts)[:_SHOWN_PROBLEMS]), str(problems[0]["loc"][0]))


def _problem(problem: ErrorDetails) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "missing":
        return f"{where} is required: add it to the request."
    text = problem["msg"]
    expected = text.replace("Input should be", "must be", 1) if text.startswith("Input") else f"is wrong: {text}"
    return f"{where} {expected}, got {_shortened(problem['input'])}."


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _of_framework(error: HTTPException) -> ApiError:
    remedies = {
        HTTPStatus.NOT_FOUND: "No such route. /docs lists them; most begin with /v1, for example /v1/chat/completions.",
        HTTPStatus.METHOD_NOT_ALLOWED: "This route does not take that method; the header `allow` says which it takes.",
    }
    return ApiError(error.status_code, remedies.get(HTTPStatus(error.status_code), str(error.detail)))
