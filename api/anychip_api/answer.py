"""What the two generating routes have in common when they answer, as one object or as server-sent events."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip.log import logger
from anychip_api.errors import as_api_error, internal_error
from anychip_api.event_stream import EventStream, event
from anychip_api.generation import Generation
from anychip_api.schemas import GenerationRequest
from anychip_api.service import Service

_DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Choice:
    """One choice of an answer that is sent whole."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: Delta) -> None:
        """What the choice gained."""
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        if delta.finish_reason:
            self.finish_reason = delta.finish_reason
            self.stop_reason = delta.stop_reason


@dataclass(slots=True)
class Head:
    """What every object of one answer repeats."""

    request_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))


class Answer(ABC):
    """Formats one request's choices; `index` below is the prompt's, and a choice is numbered over all prompts."""

    object_name: str
    chunk_name: str

    def __init__(self, service: Service, request: GenerationRequest, generation: Generation, head: Head) -> None:
        self.service = service
        self.request = request
        self.generation = generation
        self.as_ids = bool(request.return_tokens_as_token_ids)
        self.with_token_ids = bool(request.return_token_ids) or service.engine.tokenizer is None
        self._head = head
        options = request.stream_options
        self._continuous = bool(options and options.continuous_usage_stats)
        self._include_usage = bool(options and options.include_usage)

    @abstractmethod
    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """Entries of `choices` for what a choice gained, one a chunk."""

    @abstractmethod
    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """The entry of `choices` of a choice that is complete."""

    def extras(self) -> dict[str, Any]:
        """More members of the whole answer."""
        return {}

    def number(self, index: int, delta: Delta) -> int:
        """The number of a choice over all prompts."""
        return index * self.generation.choices + delta.index

    async def respond(self, request: Request, headers: dict[str, str]) -> Response:
        """The HTTP response: events, or one object when all is there."""
        if self.request.stream:
            return EventStream(self._events(request.receive), headers, on_end=self.generation.abort)
        body = msgspec.json.encode(await self._whole(request.receive))
        return Response(body, headers=headers, media_type="application/json")

    async def _whole(self, receive: Receive) -> dict[str, Any]:
        generation = self.generation
        choices = [Choice() for _ in range(len(generation.streams) * generation.choices)]
        async with aclosing(generation.batches(receive)) as batches:
            async for batch in batches:
                for index, delta in batch:
                    choices[self.number(index, delta)].add(delta)
        listed = [self.choice(number // generation.choices, number, one) for number, one in enumerate(choices)]
        return {**self._envelope(self.object_name, listed), "usage": generation.usage(), **self.extras()}

    async def _events(self, receive: Receive) -> AsyncGenerator[bytes]:
        """One item a step of the engine; an error after the first byte is an event, and the last one."""
        try:
            async with aclosing(self.generation.batches(receive)) as batches:
                async for batch in batches:
                    data = b"".join(self._chunk(piece) for item in batch for piece in self.pieces(*item))
                    if data:
                        yield data
            yield self._last_usage() + _DONE
        except Exception as error:  # noqa: BLE001 -- the client is told, and a bug is logged
            known = as_api_error(error)
            if known is None:
                logger.exception("A stream failed.")
            yield event((known or internal_error()).body())

    def _chunk(self, piece: dict[str, Any]) -> bytes:
        chunk = self._envelope(self.chunk_name, [piece])
        if self._continuous:
            chunk["usage"] = self.generation.usage()
        elif self._include_usage:
            chunk["usage"] = None
        return event(chunk)

    def _last_usage(self) -> bytes:
        if not self._include_usage:
            return b""
        return event({**self._envelope(self.chunk_name, []), "usage": self.generation.usage()})

    def _envelope(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head
        return {
            "id": head.request_id,
            "object": name,
            "created": head.created,
            "model": head.model,
            "choices": choices,
        }
