"""Sends a load: when each request starts, how many are open, and what came of it all."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import msgspec
import uvloop

from anychip.bench.ask import Outcome, ask
from anychip.bench.http import ConnectionLostError, HttpClient
from anychip.bench.options import LoadOptions
from anychip.bench.workload import Prompt, prompts, sample_text
from anychip.errors import UserError

Told = Callable[[int, int], None]
"""Called with the requests done and failed so far."""

_SAMPLE_WORDS = 256
_OK = 200


def run(options: LoadOptions, told: Told) -> tuple[str, list[Outcome], float]:
    """The model asked, each request's outcome, and the seconds it took in all.

    Raises `UserError` when there is no such server or it cannot answer one request.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(options, told))


async def _run(options: LoadOptions, told: Told) -> tuple[str, list[Outcome], float]:
    with closing(HttpClient(options.url, options.api_key)) as client:
        model = options.model or await _first_model(client, options.url)
        ratio = 1.0 if options.dataset == "sharegpt" else await _words_per_token(client, model)
        bodies = [_body(options, model, prompt) for prompt in prompts(options, ratio)]
        first = await ask(client, options.endpoint, bodies[0], options.timeout, time.perf_counter())
        if first.error:
            raise UserError(f"The server did not answer a first request: {first.error}.", "See the server's log.")
        begin = time.perf_counter()
        outcomes = await _send(client, options, bodies, told, begin)
        return model, outcomes, time.perf_counter() - begin


async def _send(
    client: HttpClient, options: LoadOptions, bodies: list[bytes], told: Told, begin: float
) -> list[Outcome]:
    limit = asyncio.Semaphore(options.concurrency) if options.concurrency else nullcontext()
    counts = {True: 0, False: 0}

    async def one(body: bytes) -> Outcome:
        async with limit:
            outcome = await ask(client, options.endpoint, body, options.timeout, begin)
        counts[not outcome.error] += 1
        told(counts[True], counts[False])
        return outcome

    tasks = []
    async with asyncio.TaskGroup() as group:
        for body, due in zip(bodies, arrivals(options), strict=False):
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            tasks.append(group.create_task(one(body)))
    return [task.result() for task in tasks]


def arrivals(options: LoadOptions) -> Iterator[float]:
    """Seconds from the start at which each next request is due."""
    chance, due = random.Random(options.seed + 1), 0.0
    while True:
        yield due
        if options.rate is not None:
            due += chance.gammavariate(options.burstiness, 1 / (options.rate * options.burstiness))


def _body(options: LoadOptions, model: str, prompt: Prompt) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": prompt.output_len,
        "temperature": options.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": prompt.text}]
    else:
        body["prompt"] = prompt.text
    if options.ignore_eos and options.dataset != "sharegpt":
        body["ignore_eos"] = True
    return msgspec.json.encode(body)


async def _first_model(client: HttpClient, url: str) -> str:
    try:
        status, data = await client.get("/v1/models")
    except (OSError, ConnectionLostError) as error:
        raise UserError(f"There is no server at {url}: {error}.", "Start it, or give its address with --url.") from None
    if status != _OK:
        text = data[:300].decode(errors="replace")
        raise UserError(f"/v1/models answered {status}: {text}.", "Give --model, and --api-key if it wants one.")
    try:
        return str(msgspec.json.decode(data)["data"][0]["id"])
    except (msgspec.DecodeError, LookupError, TypeError):
        raise UserError("/v1/models lists no model.", "Give its name with --model.") from None


async def _words_per_token(client: HttpClient, model: str) -> float:
    """How many of our words are a token, asked of servers that have /tokenize; else taken for one."""
    body = msgspec.json.encode({"model": model, "prompt": sample_text(_SAMPLE_WORDS)})
    try:
        status, data = await client.whole("POST", "/tokenize", body)
        count = float(msgspec.json.decode(data)["count"]) if status == _OK else 0.0
    except (OSError, ConnectionLostError, msgspec.DecodeError, LookupError, TypeError, ValueError):
        return 1.0
    return _SAMPLE_WORDS / count if count and math.isfinite(count) else 1.0
