"""Clients that mean no good, each a function of a port that returns the status it was answered with, 0 for none."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "127.0.0.1"
LONG = 10 * 2**20
PATIENCE = 10.0
CROWD = 500


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is closed afterwards."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(body: bytes, path: str = "/v1/completions", length: int | None = None) -> bytes:
    """A POST; `length` announces another size than the body has."""
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    return head.encode() + body


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of an answer; 0 if the connection ends or nothing comes."""
    try:
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
    except (TimeoutError, OSError):
        return 0
    parts = line.split()
    return int(parts[1]) if len(parts) > 1 else 0


def sends(body: bytes, path: str = "/v1/completions") -> Callable[[int], Awaitable[int]]:
    """An attack that is all in its body."""

    async def attacks(port: int) -> int:
        async with connected(port) as (reader, writer):
            writer.write(request(body, path))
            return await status_of(reader)

    return attacks


async def half_closed(port: int) -> int:
    """Ask for a long answer, then close the sending half only."""
    async with connected(port) as (reader, writer):
        writer.write(request(json.dumps({"prompt": "w5", "max_tokens": 200, "stream": True}).encode()))
        writer.write_eof()
        return await status_of(reader)


async def gone_in_the_middle(port: int) -> int:
    """Hang up while tokens come."""
    async with connected(port) as (reader, writer):
        writer.write(request(json.dumps({"prompt": "w5", "max_tokens": 200, "stream": True, "n": 4}).encode()))
        status = await status_of(reader)
        await reader.read(100)
        return status


async def announces_more(port: int) -> int:
    """Promise a body and send a piece of it."""
    async with connected(port) as (reader, writer):
        writer.write(request(b'{"prompt"', length=10**6))
        return await status_of(reader)


async def slow_head(port: int) -> int:
    """A header that never ends."""
    async with connected(port) as (reader, writer):
        writer.write(b"POST /v1/completions HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(20):
                writer.write(b"x-y: z\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)
        return 0 if reader.at_eof() else await status_of(reader)


async def crowd(port: int) -> int:
    """500 connections at once, half of them with half a request."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(CROWD):
            _, writer = await stack.enter_async_context(connected(port))
            if number % 2:
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        await asyncio.sleep(1)
    return 0


def nested(depth: int) -> bytes:
    """Lists in lists."""
    return b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}"


def message(content: object) -> bytes:
    """A chat of one message."""
    return json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 4}).encode()


CHAT = "/v1/chat/completions"
ATTACKS: dict[str, Callable[[int], Awaitable[int]]] = {
    "malformed JSON": sends(b'{"prompt": "w5", "max_tokens": }'),
    "not UTF-8": sends(b'{"prompt": "\xff\xfe"}'),
    "lone surrogate": sends(b'{"prompt": "\\ud800"}'),
    "lone surrogate in a name": sends(b'{"prompt": "w5", "\\udfff": 1}'),
    "nul characters": sends(b'{"prompt": "\\u0000\\u0000", "stop": "\\u0000"}'),
    "nested 100": sends(nested(100)),
    "nested 100000": sends(nested(100_000)),
    "nested schema": sends(
        json.dumps(
            {"prompt": "w5", "response_format": {"type": "json_schema", "json_schema": json.loads(nested(200))}}
        ).encode()
    ),
    "huge integer": sends(b'{"prompt": "w5", "max_tokens": 1' + b"0" * 5000 + b"}"),
    "huge seed": sends(b'{"prompt": "w5", "seed": 1e400}'),
    "huge token id": sends(b'{"prompt": [99999999999999999999999]}'),
    "many choices": sends(b'{"prompt": "w5", "n": 1000000}'),
    "many prompts": sends(json.dumps({"prompt": ["w5"] * 100_000}).encode()),
    "long text": sends(json.dumps({"prompt": "w5 " * (LONG // 3)}).encode()),
    "long word": sends(json.dumps({"prompt": "a" * LONG}).encode()),
    "long chat": sends(message("w5 " * (LONG // 3)), CHAT),
    "many token ids": sends(json.dumps({"prompt": [5] * (LONG // 3)}).encode()),
    "long stop": sends(json.dumps({"prompt": "w5", "stop": ["a" * LONG]}).encode()),
    "long tokenize": sends(json.dumps({"prompt": "w5 " * (LONG // 30)}).encode(), "/tokenize"),
    "wrong parts": sends(message([{"type": "text"}, 5, None]), CHAT),
    "regex that explodes": sends(
        json.dumps({"prompt": "w5", "structured_outputs": {"regex": "(a{1,1000}){1,1000}"}, "max_tokens": 4}).encode()
    ),
    "half-closed": half_closed,
    "gone in the middle": gone_in_the_middle,
    "announces more": announces_more,
    "slow head": slow_head,
    "500 connections": crowd,
}


async def attack(name: str, port: int) -> int:
    """Do one; a connection that breaks is no answer."""
    try:
        return await ATTACKS[name](port)
    except OSError:
        return 0
