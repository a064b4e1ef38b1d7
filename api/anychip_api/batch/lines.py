"""The lines of a batch's input file, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import msgspec

from anychip_api.errors import ApiError

URLS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
)
"""Routes that a line may ask, as far as the server has them."""

MOST_PROBLEMS = 100
_LONGEST_ID = 512
_UNFIT = ("background", "stream")


class Line(msgspec.Struct, frozen=True):
    """One request. `body` stays as it was written: what is wrong in it is that request's own error."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: Literal["POST"] = "POST"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an input file cannot be run; lines count from 1."""

    line: int
    code: str
    message: str


@dataclass(slots=True)
class Scan:
    """What a first look at an input file found."""

    ids: set[str]
    problems: list[Problem]


def read_lines(path: Path) -> Iterator[Line]:
    """The requests of a file that was scanned without problems."""
    with path.open("rb") as file:
        for text in file:
            if text.strip():
                yield msgspec.json.decode(text, type=Line)


def scan(path: Path, urls: Collection[str], most: int | None = None) -> Scan:
    """Check each line's frame: its fields, that ids differ, that it asks one of `urls`; `most` limits the lines."""
    found = Scan(set(), [])
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                _scan_line(number, text, urls, found)
            if most is not None and len(found.ids) > most:
                found.problems = [Problem(number, "too_many_requests", f"The file has more than {most} requests.")]
            if len(found.problems) >= MOST_PROBLEMS or (most is not None and len(found.ids) > most):
                return found
    if not found.ids and not found.problems:
        found.problems.append(Problem(1, "empty_file", "The file has no requests."))
    return found


def _scan_line(number: int, text: bytes, urls: Collection[str], found: Scan) -> None:
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found.problems.append(Problem(number, "invalid_json_line", f"This is no request of a batch: {error}"))
        return
    if line.custom_id in found.ids:
        found.problems.append(Problem(number, "duplicate_custom_id", f"custom_id {line.custom_id[:80]!r} is taken."))
    elif not 0 < len(line.custom_id) <= _LONGEST_ID:
        found.problems.append(Problem(number, "invalid_custom_id", f"custom_id has 1 to {_LONGEST_ID} characters."))
    elif line.url not in urls:
        message = f"url is {line.url[:80]!r}; here it has to be {' or '.join(urls)}."
        found.problems.append(Problem(number, "mismatched_url", message))
    else:
        found.ids.add(line.custom_id)


def check_body(body: msgspec.Raw) -> None:
    """Raise `ApiError` for what only works over a connection; the route checks all else."""
    try:
        fields: Any = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for name in _UNFIT:
        if bytes(fields.get(name, b"null")) not in (b"null", b"false"):
            raise ApiError(HTTPStatus.BAD_REQUEST, f"{name} does not fit a batch. Leave it out.", name)
