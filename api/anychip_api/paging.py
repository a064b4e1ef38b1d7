"""OpenAI's lists: a part of what there is, and how to ask for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from anychip.errors import RequestError


def page(request: Request, entries: Sequence[dict[str, Any]], limit: int, most: int) -> dict[str, Any]:
    """The entries that a request asks for by `order`, `after` and `limit`; `entries` are the oldest first."""
    query = request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order is {order[:20]!r}.", "order", "Send asc or desc.")
    ordered = list(entries if order == "asc" else reversed(entries))
    after = query.get("after")
    if after is not None:
        places = [place for place, entry in enumerate(ordered) if entry["id"] == after]
        if not places:
            raise RequestError(f"after names {after[:80]!r}, which is not in the list.", "after", "Send an entry's id.")
        ordered = ordered[places[0] + 1 :]
    count = _limit(query.get("limit"), limit, most)
    shown = ordered[:count]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(ordered) > count,
    }


def _limit(text: str | None, limit: int, most: int) -> int:
    if text is None:
        return limit
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise RequestError(f"limit must be between 1 and {most}.", "limit", "Send a number in that range.")
    return int(text)
