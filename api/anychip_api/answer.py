"""What all generating routes have in common when they answer, as one object or as server-sent events."""

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

from anychip.log import logger
from anychip_api.ended import ON_ENDED
from anychip_api.errors import ApiError, as_api_error, internal_error
from anychip_api.event_stream import EventStream
from anychip_api.generation import Generation
from anychip_api.merge import Deltas


@dataclass(slots=True)
class Head:
    """The fields that every object of one answer repeats: id, model, seconds since 1970."""

    request_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))


class Answer(ABC):
    """Formats what one request generates in the shapes of one protocol, either as events or whole."""

    def __init__(self, generation: Generation, head: Head, stream: bool) -> None:
        self.generation = generation
        self.head = head
        self._stream = stream

    @abstractmethod
    def add(self, deltas: Deltas) -> None:
        """Keep what the choices gained, for `whole`; called for each step, if the answer is not streamed."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The answer as one object, once everything was added."""

    def opening(self) -> bytes:
        """Bytes of the events before the first token."""
        return b""

    @abstractmethod
    def events(self, deltas: Deltas) -> bytes:
        """Bytes of the events for what the choices gained in a step; empty when there is nothing to show."""

    @abstractmethod
    def closing(self) -> bytes:
        """The last events of a stream that went well."""

    @abstractmethod
    def failure(self, error: ApiError) -> bytes:
        """The last events of a stream that failed."""

    async def respond(self, request: Request, headers: dict[str, str]) -> Response:
        """The HTTP response: events as they come, or one JSON object once all is there."""
        if listener := request.scope.get(ON_ENDED):
            self.generation.listeners.append(listener)
        if self._stream:
            return EventStream(self.stream(request.receive), headers, on_end=self.generation.abort)
        body = msgspec.json.encode(await self.complete(request.receive))
        return Response(body, headers=headers, media_type="application/json")

    async def complete(self, receive: Receive) -> dict[str, Any]:
        """Wait for the whole answer; `receive` is ASGI's, which tells when the client has gone."""
        async with aclosing(self.generation.deltas(receive)) as gained:
            async for deltas in gained:
                self.add(deltas)
        return self.whole()

    async def stream(self, receive: Receive) -> AsyncGenerator[bytes]:
        """Yield bytes of events, one item for each step of the engine. An error becomes the last event."""
        try:
            opening = self.opening()
            if opening:
                yield opening
            async with aclosing(self.generation.deltas(receive)) as gained:
                async for deltas in gained:
                    data = self.events(deltas)
                    if data:
                        yield data
            yield self.closing()
        except Exception as error:  # noqa: BLE001 -- the client is told, and a bug is logged
            known = as_api_error(error)
            if known is None:
                logger.exception("A stream failed.")
            yield self.failure(known or internal_error())
