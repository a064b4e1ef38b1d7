"""One streamed request, and when its parts came."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anychip.bench.http import ConnectionLostError, HttpClient

_OK = 200
_ROUTES = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class Outcome:
    """One request. Times are seconds since the load began; `chunks` are those of each piece of text."""

    start: float = 0.0
    end: float = 0.0
    chunks: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str = ""

    @property
    def e2e(self) -> float:
        """From sending to the last token."""
        return self.end - self.start

    @property
    def ttft(self) -> float:
        """From sending to the first token."""
        return self.chunks[0] - self.start

    @property
    def tpot(self) -> float:
        """Mean time of each token after the first."""
        return (self.chunks[-1] - self.chunks[0]) / max(1, self.output_tokens - 1)

    @property
    def itl(self) -> list[float]:
        """Times between pieces."""
        return [later - earlier for earlier, later in zip(self.chunks, self.chunks[1:], strict=False)]


class _Events:
    """Reads server-sent events into an outcome."""

    def __init__(self, outcome: Outcome, begin: float) -> None:
        self._outcome = outcome
        self._begin = begin
        self._rest = b""
        self.plain: list[bytes] = []
        """Lines that belong to no event: the body of an error."""

    def feed(self, data: bytes) -> None:
        """Part of the body."""
        now = time.perf_counter() - self._begin
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)
            elif line.strip():
                self.plain.append(line)

    def text(self) -> str:
        """What came instead of events."""
        return b"\n".join([*self.plain, self._rest]).decode(errors="replace")

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            return
        chunk, outcome = _decode(data), self._outcome
        if chunk.error is not None:
            outcome.error = str(chunk.error)
        if chunk.usage is not None:
            outcome.prompt_tokens, outcome.output_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        if any(_has_text(choice) for choice in chunk.choices):
            outcome.chunks.append(now)


def _has_text(choice: _Choice) -> bool:
    delta = choice.delta
    return bool(choice.text or (delta and (delta.content or delta.reasoning_content)))


async def ask(client: HttpClient, endpoint: str, body: bytes, timeout: float, begin: float) -> Outcome:
    """Send one request; what came of it, errors included. `begin` is the load's start on `time.perf_counter`."""
    outcome = Outcome()
    events = _Events(outcome, begin)
    outcome.start = time.perf_counter() - begin
    try:
        async with asyncio.timeout(timeout):
            status = await client.stream("POST", _ROUTES[endpoint], body, events.feed)
        if status != _OK:
            outcome.error = f"status {status}: {events.text()[:500]}"
    except TimeoutError:
        outcome.error = f"not done after {timeout:g} s"
    except (OSError, ConnectionLostError, msgspec.DecodeError) as error:
        outcome.error = str(error) or type(error).__name__
    outcome.end = time.perf_counter() - begin
    if not outcome.error and not outcome.chunks:
        outcome.error = "the answer has no text"
    outcome.output_tokens = outcome.output_tokens or len(outcome.chunks)
    return outcome
