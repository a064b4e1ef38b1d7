"""Vectors of many prompts at once: submitted together, awaited together, aborted together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.pooling import Pair, Vector
from anychip.errors import RequestError
from anychip.plugin.tasks import Task
from anychip.pooling_params import PoolingParams
from anychip_api.ended import ON_ENDED
from anychip_api.generation import MAX_SEQUENCES, Generation, Prompt, submit_all, time_allowed
from anychip_api.pooling.schemas import PoolingRequest
from anychip_api.sampling import renamed
from anychip_api.service import Service

if TYPE_CHECKING:
    from anychip.engine.stream import RequestStream


SLICE = 32
"""Prompts tokenized at a time."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Raw vectors in the order of their prompts, and OpenAI's usage object."""

    raw: list[Vector]
    usage: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """What one HTTP request asks of the engine; `param` is the field that holds the prompts."""

    prompts: Sequence[Prompt | Pair]
    params: PoolingParams
    task: Task
    param: str
    prompt_name: str | None = None


async def run(service: Service, request: Request, body: PoolingRequest, work: Work) -> Vectors:
    """Have every prompt's vector made. Raises `RequestError` for the first prompt that is refused: then none runs."""
    if len(work.prompts) > MAX_SEQUENCES:
        what = f"{work.param} holds {len(work.prompts)} texts; the most is {MAX_SEQUENCES}."
        raise RequestError(what, work.param, "Send several smaller requests.")
    service.admission.check(len(work.prompts))
    request_id = str(request.scope["request_id"])

    def submit(prompt: Prompt | Pair) -> RequestStream:
        return service.engine.submit_vector(
            prompt,
            work.params,
            work.task,
            request_id=request_id,
            prompt_name=work.prompt_name,
            priority=body.priority or 0,
            cache_salt=body.cache_salt or "",
            add_special_tokens=body.add_special_tokens is not False,
        )

    try:
        streams = await _submit_slices(work.prompts, submit)
    except RequestError as error:
        raise renamed(error, {"prompt": work.param}) from None
    generation = Generation(service, streams, 1, time_allowed(service, body.request_timeout))
    if listener := request.scope.get(ON_ENDED):
        generation.listeners.append(listener)
    return await _gather(generation, request)


async def _submit_slices(
    prompts: Sequence[Prompt | Pair], submit: Callable[[Prompt | Pair], RequestStream]
) -> list[RequestStream]:
    """Submit each prompt, all or none; others get a turn while a long list is tokenized."""
    streams: list[RequestStream] = []
    try:
        for first in range(0, len(prompts), SLICE):
            streams += submit_all(prompts[first : first + SLICE], submit)
            await asyncio.sleep(0)
    except BaseException:
        for stream in streams:
            stream.abort()
        raise
    return streams


async def _gather(generation: Generation, request: Request) -> Vectors:
    found: dict[int, Vector] = {}
    async with aclosing(generation.deltas(request.receive)) as gained:
        async for deltas in gained:
            found |= {index: delta.vector for index, delta in deltas if delta.vector is not None}
    tokens = generation.usage()["prompt_tokens"]
    raw = [found[index] for index in range(len(generation.streams))]
    return Vectors(raw, {"prompt_tokens": tokens, "total_tokens": tokens})


def respond(answer: Mapping[str, Any], headers: dict[str, str]) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(answer), headers=headers, media_type="application/json")
