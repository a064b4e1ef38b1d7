"""Level 4: an engine in a process of its own, and the server where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from anychip.engine.async_engine import AsyncEngine
from anychip.engine.outputs import Delta
from anychip.sampling_params import SamplingParams
from anychip.testing.bench import random_tokens
from anychip.testing.check import NotApplicableError, require, whole
from anychip.testing.served import Served
from anychip.testing.subject import Subject

LENGTH = 20
AT_ONCE = 64
LONG = 200
STREAMS = 50
QUIET_SECONDS = 20.0
PARAMS = SamplingParams(temperature=0.0, max_tokens=LENGTH, ignore_eos=True)

EngineCheck = Callable[[AsyncEngine], Coroutine[Any, Any, str]]


def _with_engine(check: EngineCheck, subject: Subject) -> str:
    """Run a check on the subject's engine process; in the end nothing may be left running, waiting or held."""

    async def go() -> str:
        remark = await check(subject.async_engine)
        await _quiet(subject.async_engine)
        return remark

    engine = subject.async_engine  # before the loop runs
    assert not engine.dead, "the engine process died in an earlier check"
    return subject.loop.run(go())


async def _collect(engine: AsyncEngine, seed: int, params: SamplingParams = PARAMS) -> list[Delta]:
    prompt = random_tokens(seed, 8 + seed % 40)
    return [delta async for delta in engine.submit({"prompt_token_ids": prompt}, params)]


async def _quiet(engine: AsyncEngine) -> None:
    """Wait until nothing runs and every block is back."""
    deadline = asyncio.get_running_loop().time() + QUIET_SECONDS
    while engine.stats.running or engine.stats.waiting or engine.stats.blocks_used:
        late = asyncio.get_running_loop().time() > deadline
        require(not late, f"after {QUIET_SECONDS:.0f} s there is still {engine.stats}")
        await asyncio.sleep(0.02)


async def _completion(engine: AsyncEngine) -> str:
    """A request gives the tokens it asked for, and the same ones when it comes again."""
    first, again = _tokens(await _collect(engine, 1)), _tokens(await _collect(engine, 1))
    require(len(first) == LENGTH, f"{LENGTH} tokens were asked for, {len(first)} came")
    require(first == again, "the same greedy request gave two different results")
    return ""


async def _stream(engine: AsyncEngine) -> str:
    """Tokens come while the rest is computed, and the last delta says why it ended."""
    deltas: list[Delta] = []
    for _ in range(STREAMS):  # a device may be done before a busy host looks
        deltas = await _collect(engine, 2, PARAMS.replace(max_tokens=LONG))
        if len(deltas) > 1:
            break
    reasons = [delta.finish_reason for delta in deltas]
    require(len(deltas) > 1, f"{LONG} tokens came in one piece, {STREAMS} times")
    require(reasons == [None] * (len(deltas) - 1) + ["length"], f"finish reasons: {reasons}")
    return f"{len(deltas)} pieces"


async def _abort(engine: AsyncEngine) -> str:
    """Leaving a stream frees what it held, and others go on."""
    other = asyncio.create_task(_collect(engine, 3))
    async for _ in engine.submit({"prompt_token_ids": random_tokens(4, 20)}, PARAMS.replace(max_tokens=LONG)):
        break
    unread = engine.submit({"prompt_token_ids": random_tokens(5, 20)}, PARAMS.replace(max_tokens=LONG))
    unread.abort()
    require(len(_tokens(await other)) == LENGTH, "an abort disturbed another request")
    return ""


async def _at_once(engine: AsyncEngine) -> str:
    """64 requests together, each of which gets all its tokens."""
    found = await asyncio.gather(*(_collect(engine, seed) for seed in range(AT_ONCE)))
    counts = {len(_tokens(deltas)) for deltas in found}
    require(counts == {LENGTH}, f"{AT_ONCE} requests for {LENGTH} tokens got {sorted(counts)}")
    return f"{engine.stats.steps_total} steps"


async def _memory_back(engine: AsyncEngine) -> str:
    """After a crowd of which half leaves early, as much is free as before."""
    before = engine.stats.blocks_used
    leaving = [engine.submit({"prompt_token_ids": random_tokens(seed, 40)}, PARAMS) for seed in range(AT_ONCE // 2)]
    staying = [asyncio.create_task(_collect(engine, seed)) for seed in range(AT_ONCE // 2)]
    await staying[0]
    for stream in leaving:
        stream.abort()
    await asyncio.gather(*staying)
    await _quiet(engine)
    require(engine.stats.blocks_used == before == 0, f"{engine.stats.blocks_used} blocks are held, {before} before")
    return f"{engine.stats.blocks} blocks"


def _tokens(deltas: list[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def _http(subject: Subject) -> str:
    """`anychip serve`: a completion and a stream over HTTP agree, and the server stops when told to."""
    if importlib.util.find_spec("anychip_api") is None:
        raise NotApplicableError("the server is not installed")
    with Served(subject) as served:
        body = {"prompt": "w1 w2 w3 w4", "temperature": 0, "max_tokens": LENGTH, "ignore_eos": True}
        whole = served.complete(body)
        streamed = served.stream(body)
        require(len(whole.split()) == LENGTH, f"{LENGTH} words were asked for, the answer is {whole!r}")
        require(streamed == whole, f"the stream gave {streamed!r}, the completion {whole!r}")
    require(served.status == 0, f"the server ended with status {served.status}")
    return ""


SERVE_CHECKS = (
    *(
        whole(4, name, partial(_with_engine, check), "engine")
        for name, check in {
            "completion": _completion,
            "stream": _stream,
            "abort": _abort,
            "64 at once": _at_once,
            "memory back": _memory_back,
        }.items()
    ),
    whole(4, "over HTTP", _http),
)
"""The end of each: nothing runs, nothing waits, every block is back."""
