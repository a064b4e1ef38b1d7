"""/v1/responses: create, read again, go on with, cancel, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.errors import RequestError
from anychip_api.as_chat import start_as_chat
from anychip_api.body import read_schema
from anychip_api.errors import ApiError
from anychip_api.event_stream import EventStream
from anychip_api.paging import page
from anychip_api.responses.answer import ResponseAnswer
from anychip_api.responses.as_chat import NAMES, chat_fields
from anychip_api.responses.background import Background
from anychip_api.responses.items import Item, input_items
from anychip_api.responses.response import Opening
from anychip_api.responses.schema import ResponsesRequest
from anychip_api.responses.store import Stored
from anychip_api.service import Service

_FEW, _MOST = 20, 100


async def create_response(service: Service, request: Request) -> Response:
    """Answer an input, with or without what came before it."""
    body, headers = await read_schema(service, request, ResponsesRequest)
    model = service.model_name(body.model)
    _check_options(body)
    history = _history(service, body.previous_response_id)
    items = input_items(body.input)
    fields = chat_fields(body, [*history, *items])
    generation, reading = await start_as_chat(service, fields, NAMES, f"resp-{request.scope['request_id']}")
    opening = Opening(body, model, generation.streams[0].params, items, history)
    stored = Stored(opening.shown("queued", []), items, history)

    def keep(response: dict[str, Any]) -> None:
        stored.response = response
        if opening.stored:
            service.responses.add(stored)

    answer = ResponseAnswer(service, generation, reading, opening, keep)
    if not body.background:
        return await answer.respond(request, headers)
    stored.background = Background(answer)
    keep(stored.response)
    return _follow(stored.background, 0, headers) if body.stream else _json(stored.response, headers)


async def get_response(service: Service, request: Request) -> Response:
    """A stored response as it stands, or its events once more."""
    stored = service.responses.get(request.path_params["response_id"])
    if request.query_params.get("stream", "false") not in ("true", "1"):
        return _json(_current(stored))
    if stored.background is None:
        message = "Only a response that was created with `background` can be streamed again."
        raise RequestError(message, "stream", "Leave `stream` out to get it whole.")
    return _follow(stored.background, _starting_after(request) + 1, {})


async def delete_response(service: Service, request: Request) -> Response:
    """Forget a stored response."""
    response_id = request.path_params["response_id"]
    service.responses.delete(response_id)
    return _json({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(service: Service, request: Request) -> Response:
    """End a response that is under way in the background."""
    stored = service.responses.get(request.path_params["response_id"])
    if stored.background is None:
        message = (
            "Only a response that was created with `background` can be cancelled; others end with their connection."
        )
        raise ApiError(HTTPStatus.BAD_REQUEST, message, "response_id")
    if not stored.background.over:
        stored.background.cancel()
        stored.response = stored.background.answer.so_far("cancelled")
        service.responses.add(stored)
    return _json(stored.response)


async def list_input_items(service: Service, request: Request) -> Response:
    """What a stored response was asked."""
    stored = service.responses.get(request.path_params["response_id"])
    return _json(page(request, stored.items, _FEW, _MOST))


def _check_options(body: ResponsesRequest) -> None:
    if body.background and body.store is False:
        raise RequestError(
            "background needs store.", "background", "Nobody could read the response: set store to true."
        )
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs a stream.", "stream_options", "Set `stream` to true as well.")


def _history(service: Service, previous: str | None) -> list[Item]:
    if previous is None:
        return []
    stored = service.responses.get(previous, "previous_response_id")
    if stored.background is not None and not stored.background.over:
        raise RequestError("The response before is still under way.", "previous_response_id", "Wait for its end.")
    return stored.conversation


def _current(stored: Stored) -> dict[str, Any]:
    if stored.background is None or stored.background.over:
        return stored.response
    return stored.background.answer.so_far()


def _starting_after(request: Request) -> int:
    text = request.query_params.get("starting_after", "-1")
    if text != "-1" and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RequestError("starting_after must be a sequence number.", "starting_after", "Send the last one you have.")
    return int(text)


def _follow(background: Background, start: int, headers: dict[str, str]) -> Response:
    return EventStream(background.follow(start), headers, on_end=lambda: None)


def _json(answer: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(answer), headers=headers, media_type="application/json")
