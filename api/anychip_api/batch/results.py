"""The lines of a batch's output and error files, in OpenAI's format."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec


class Answered(msgspec.Struct, frozen=True):
    """What a route said; `body` as it wrote it."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class Unanswered(msgspec.Struct, frozen=True):
    """Why a request was not run."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True):
    """One line of an output or error file: a response or an error."""

    id: str
    custom_id: str
    response: Answered | None = None
    error: Unanswered | None = None

    @property
    def went_well(self) -> bool:
        """Whether it belongs in the output rather than in the error file."""
        return self.response is not None and self.response.status_code == HTTPStatus.OK

    @property
    def was_run(self) -> bool:
        """Whether asking again would bring nothing new: not so where the engine or the server was about to end."""
        return self.response is not None and self.response.status_code != HTTPStatus.SERVICE_UNAVAILABLE

    def line(self) -> bytes:
        """The line as bytes, its end included."""
        return msgspec.json.encode(self) + b"\n"


@dataclass(slots=True)
class Usage:
    """Tokens over all answers, whichever names their routes give them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, result: Result) -> int:
        """Count an answer's tokens; returns how many it generated."""
        if result.response is None or not result.went_well:
            return 0
        usage = msgspec.json.decode(result.response.body, type=_WithUsage).usage or _Usage()
        output = usage.output_tokens or usage.completion_tokens
        details = usage.input_tokens_details or usage.prompt_tokens_details or {}
        self.input_tokens += usage.input_tokens or usage.prompt_tokens
        self.output_tokens += output
        self.cached_tokens += details.get("cached_tokens") or 0
        return output

    def shown(self) -> dict[str, Any]:
        """OpenAI's `usage` of a batch."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens_details: dict[str, int | None] | None = None
    input_tokens_details: dict[str, int | None] | None = None


class _WithUsage(msgspec.Struct):
    usage: _Usage | None = None


def answered(custom_id: str, status_code: int, request_id: str, body: bytes) -> Result:
    """The result of a request that was run."""
    return Result(_make_id(), custom_id, Answered(status_code, request_id, msgspec.Raw(body)))


def unanswered(custom_id: str, code: str, message: str) -> Result:
    """The result of a request that was not run."""
    return Result(_make_id(), custom_id, error=Unanswered(code, message))


def _make_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"
