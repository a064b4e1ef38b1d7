"""The sequences behind one HTTP request: read together, aborted together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import Receive

from anychip.engine.outputs import Delta
from anychip.errors import RequestError
from anychip.log import logger
from anychip.sampling_params import SamplingParams
from anychip_api.clock import RequestClock
from anychip_api.errors import ApiError
from anychip_api.merge import Batch, merged
from anychip_api.schemas import GenerationRequest
from anychip_api.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anychip.engine.stream import RequestStream

MAX_SEQUENCES = 2048
"""Most sequences that one HTTP request may start."""

Prompt = str | list[int]


class Generation:
    """Open sequences, one stream a prompt with `choices` choices each."""

    def __init__(self, service: Service, streams: Sequence[RequestStream], choices: int) -> None:
        self.streams = streams
        self.choices = choices
        self._service = service
        self._abort_reason = ""
        arrived = time.monotonic()
        self._clocks = [RequestClock(service.metrics, len(stream.prompt_token_ids), arrived) for stream in streams]

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object, as of now; a prompt counts once however many choices it has."""
        prompt = sum(len(stream.prompt_token_ids) for stream in self.streams)
        completion = sum(clock.generated for clock in self._clocks)
        cached = sum(stream.num_cached_tokens for stream in self.streams)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def abort(self, reason: str = "") -> None:
        """End every sequence that has not ended; a client that still listens gets `reason` as an error."""
        self._abort_reason = self._abort_reason or reason
        for stream in self.streams:
            stream.abort()

    async def batches(self, receive: Receive) -> AsyncGenerator[Batch]:
        """What the choices gain, until all have ended or the client has gone.

        Raises `ApiError` when a choice ends by an error or an abort, `EngineDeadError` when the engine dies.
        """
        with self._open(receive):
            single = len(self.streams) == 1 and self.choices == 1
            async with aclosing(merged(self.streams, single)) as batches:
                async for batch in batches:
                    now = time.monotonic()
                    for index, delta in batch:
                        self._clocks[index].on_delta(delta, now)
                        self._check(delta)
                    yield batch
            if self._abort_reason:
                raise self._aborted()

    @contextmanager
    def _open(self, receive: Receive) -> Iterator[None]:
        watcher = asyncio.create_task(self._watch(receive))
        self._service.open.add(self)
        try:
            yield
        finally:
            watcher.cancel()
            self._service.open.discard(self)
            self.abort()
            for clock in self._clocks:
                clock.close()
            if self._service.options.log_requests:
                self._log()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.abort("The client has gone.")

    def _check(self, delta: Delta) -> None:
        if delta.finish_reason == "error":
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, delta.error or "The engine could not go on.")
        if delta.finish_reason == "abort":
            raise self._aborted()

    def _aborted(self) -> ApiError:
        message = self._abort_reason or "The request was aborted."
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{message} Send the request again.", code="aborted")

    def _log(self) -> None:
        usage = self.usage()
        counts = usage["prompt_tokens"], usage["completion_tokens"]
        logger.info("%s: %d prompt tokens, %d generated", self.streams[0].request_id, *counts)


def start(
    service: Service, request: GenerationRequest, prompts: Sequence[Prompt], params: SamplingParams, request_id: str
) -> Generation:
    """Submit each prompt. All run or none: raises `RequestError` for the first prompt that is refused."""
    if len(prompts) * params.n > MAX_SEQUENCES:
        raise RequestError(
            f"{len(prompts)} prompts with {params.n} choices each are more than {MAX_SEQUENCES} sequences.",
            "prompt",
            "Send several smaller requests.",
        )
    engine = service.engine
    streams: list[RequestStream] = []
    try:
        for prompt in prompts:
            streams.append(
                engine.submit(
                    prompt,
                    params,
                    request_id=request_id,
                    priority=request.priority or 0,
                    cache_salt=request.cache_salt or "",
                    add_special_tokens=request.add_special_tokens is not False,
                )
            )
    except Exception:
        for stream in streams:
            stream.abort()
        raise
    return Generation(service, streams, params.n)
