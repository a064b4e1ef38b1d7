"""Responses that later requests may go on with, in memory. The least recently used are forgotten first."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from anychip_api.errors import ApiError

if TYPE_CHECKING:
    from anychip_api.responses.background import Background
    from anychip_api.responses.items import Item


@dataclass(slots=True)
class Stored:
    """A response with the items before it; `background` is what makes it, if nobody waits for it."""

    response: dict[str, Any]
    items: list[Item]
    history: list[Item]
    background: Background | None = None

    @property
    def conversation(self) -> list[Item]:
        """Every item up to the end of the response."""
        return [*self.history, *self.items, *self.response["output"]]

    @property
    def size(self) -> int:
        """Bytes that it holds, those that it shares with others included."""
        events = self.background.size if self.background else 0
        return len(msgspec.json.encode([self.response, self.history, self.items])) + events


class ResponseStore:
    """At most `most` responses of `most_bytes` in all."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[str, tuple[Stored, int]] = {}
        self._bytes = 0

    def add(self, stored: Stored) -> None:
        """Keep a response, or put it in the place of its earlier state."""
        key = stored.response["id"]
        self._drop(key)
        size = stored.size
        self._kept[key] = (stored, size)
        self._bytes += size
        while self._kept and (len(self._kept) > self._most or self._bytes > self._most_bytes):
            self._forget(next(iter(self._kept)))

    def get(self, response_id: str, param: str | None = None) -> Stored:
        """One response; raises `ApiError` when there is none."""
        kept = self._kept.pop(response_id, None)
        if kept is None:
            message = (
                f"There is no response {response_id[:80]!r}. It was not stored, or deleted, or forgotten since: "
                f"the last {self._most} are kept (--max-stored-responses, --max-stored-response-bytes)."
            )
            raise ApiError(HTTPStatus.NOT_FOUND, message, param, "not_found")
        self._kept[response_id] = kept
        return kept[0]

    def delete(self, response_id: str) -> None:
        """Forget a response, and end it if it is under way; raises `ApiError` when there is none."""
        self.get(response_id)
        self._forget(response_id)

    def close(self) -> None:
        """Forget all responses, and end those under way."""
        for key in list(self._kept):
            self._forget(key)

    def _forget(self, key: str) -> None:
        stored = self._drop(key)
        if stored is not None and stored.background is not None:
            stored.background.cancel()

    def _drop(self, key: str) -> Stored | None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._bytes -= kept[1]
        return kept[0]
