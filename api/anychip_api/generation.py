"""The sequences behind one HTTP request: read together, aborted together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import Receive

from anychip.engine.outputs import Delta
from anychip.errors import RequestError
from anychip.sampling_params import SamplingParams
from anychip_api.clock import RequestClock
from anychip_api.ended import Ended, EndListener
from anychip_api.errors import CLIENT_GONE, ApiError
from anychip_api.merge import Deltas, merged
from anychip_api.schemas import GenerationRequest
from anychip_api.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anychip.engine.stream import RequestStream

MAX_SEQUENCES = 2048
"""Most sequences that one HTTP request may start."""

Prompt = str | list[int] | dict[str, Any]
P = TypeVar("P")


class Generation:
    """Open sequences, one stream a prompt with `choices` choices each."""

    def __init__(
        self, service: Service, streams: Sequence[RequestStream], choices: int, timeout: float | None = None
    ) -> None:
        self.streams = streams
        self.choices = choices
        self.listeners: list[EndListener] = [Ended.log] if service.options.log_requests else []
        self._service = service
        self._timeout = timeout
        self._abort: ApiError | None = None
        self._arrived = time.monotonic()
        self._clocks = [RequestClock(service.metrics, stream, self._arrived) for stream in streams]

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

    def abort(self, reason: str = "The request was aborted.") -> None:
        """End every sequence that has not ended; a client that still listens gets `reason` as an error."""
        message = f"{reason} Send the request again."
        self._end(ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message, code="aborted"))

    def _end(self, error: ApiError) -> None:
        self._abort = self._abort or error
        for stream in self.streams:
            stream.abort()

    async def deltas(self, receive: Receive) -> AsyncGenerator[Deltas]:
        """Yield what the choices gain, until all have ended or the client has gone.

        Raises `ApiError` when a choice ends by an error or an abort, `EngineDeadError` when the engine dies.
        """
        with self._open(receive):
            single = len(self.streams) == 1 and self.choices == 1
            async with aclosing(merged(self.streams, single)) as gained:
                async for deltas in gained:
                    now = time.monotonic()
                    for index, delta in deltas:
                        self._clocks[index].on_delta(delta, now)
                        self._check(delta)
                    yield deltas
            if self._abort:
                raise self._abort

    @contextmanager
    def _open(self, receive: Receive) -> Iterator[None]:
        watcher = asyncio.create_task(self._watch(receive))
        deadline = self._deadline()
        self._service.open.add(self)
        try:
            yield
        finally:
            watcher.cancel()
            if deadline:
                deadline.cancel()
            self._service.open.discard(self)
            self.abort()
            for clock in self._clocks:
                clock.close()
            if self.listeners:
                self._tell()

    def _deadline(self) -> asyncio.TimerHandle | None:
        if self._timeout is None:
            return None
        message = f"The request did not finish within {self._timeout:g} s. Ask for less, or allow it more time."
        error = ApiError(HTTPStatus.GATEWAY_TIMEOUT, message, code="request_timeout")
        return asyncio.get_running_loop().call_later(self._timeout, self._end, error)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end(ApiError(CLIENT_GONE, "The client has gone.", code="aborted"))

    def _check(self, delta: Delta) -> None:
        if delta.finish_reason == "error":
            status = HTTPStatus.BAD_REQUEST if delta.refused else HTTPStatus.INTERNAL_SERVER_ERROR
            raise ApiError(status, delta.error or "The engine could not go on.")
        if delta.finish_reason == "abort":
            self.abort()
            assert self._abort is not None, "it was just given"
            raise self._abort

    def _tell(self) -> None:
        usage = self.usage()
        first = min((clock.first for clock in self._clocks if clock.first), default=None)
        ended = Ended(
            request_id=self.streams[0].request_id,
            model=self._service.names[0],
            params=self.streams[0].params,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
            generated_tokens=usage["completion_tokens"],
            finish_reasons=tuple(clock.reason for clock in self._clocks),
            queued=max(stream.waited for stream in self.streams),
            first_token=None if first is None else round(first - self._arrived, 6),
            total=time.monotonic() - self._arrived,
        )
        for listener in self.listeners:
            listener(ended)


def start(
    service: Service, request: GenerationRequest, prompts: Sequence[Prompt], params: SamplingParams, request_id: str
) -> Generation:
    """Submit all prompts, or none of them: raises `RequestError` for the first one that is refused."""
    if len(prompts) * params.n > MAX_SEQUENCES:
        raise RequestError(
            f"{len(prompts)} prompts with {params.n} choices each are more than {MAX_SEQUENCES} sequences.",
            "prompt",
            "Send several smaller requests.",
        )
    service.admission.check(len(prompts) * params.n)

    def submit(prompt: Prompt) -> RequestStream:
        return service.engine.submit(
            prompt,
            params,
            request_id=request_id,
            priority=request.priority or 0,
            cache_salt=request.cache_salt or "",
            add_special_tokens=request.add_special_tokens is not False,
        )

    return Generation(service, submit_all(prompts, submit), params.n, time_allowed(service, request.request_timeout))


def submit_all(prompts: Sequence[P], submit: Callable[[P], RequestStream]) -> list[RequestStream]:
    """Submit each prompt; if one is refused, none runs."""
    streams: list[RequestStream] = []
    try:
        for prompt in prompts:
            streams.append(submit(prompt))
    except Exception:
        for stream in streams:
            stream.abort()
        raise
    return streams


def time_allowed(service: Service, asked: float | None) -> float | None:
    """Seconds that a request may take: the shorter of the server's and its own."""
    limits = [limit for limit in (service.options.request_timeout, asked) if limit is not None]
    return min(limits, default=None)
