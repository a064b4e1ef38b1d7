"""Texts of megabytes: refused in time where they cannot fit, and nobody else waits for them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest
from tests.api.running import LIMIT, RunningServer
from tests.operate.conftest import Serve

MANY = 3_000_000
"""Words; ten megabytes."""
CALM = 0.7
"""Processor seconds of the event loop, which serves all; it takes less than half of that, and more for a whole text."""
PAUSE = 0.2


@pytest.fixture(scope="module")
def server(serve: Serve) -> Iterator[RunningServer]:
    with serve({"max_model_len": 100_000}) as server:
        yield server


def answer_beside_others(server: RunningServer, path: str, body: dict[str, object]) -> tuple[httpx.Response, float]:
    """The answer to `body`, and what the event loop worked until it came, with short requests now and then."""
    data, before = json.dumps(body).encode(), loop_seconds(server)
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.base, timeout=LIMIT) as other:
        answer = pool.submit(other.post, path, content=data, headers={"content-type": "application/json"})
        while not answer.done():
            server.complete("w5", max_tokens=1)
            wait([answer], PAUSE)
        return answer.result(), loop_seconds(server) - before


def loop_seconds(server: RunningServer) -> float:
    """Processor seconds of the server's first thread, which has the event loop."""
    stat = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/stat").read_text()
    user, system = stat.rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "w5 " * MANY}, "prompt"),
        ("/v1/completions", {"prompt": ["w6", "w5 " * MANY]}, "prompt"),
        ("/v1/completions", {"prompt": [5] * MANY}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "w5 " * MANY}]}, "messages"),
    ],
    ids=["text", "batch", "ids", "chat"],
)
def test_a_prompt_of_megabytes(server: RunningServer, path: str, body: dict[str, object], param: str) -> None:
    answer, worked = answer_beside_others(server, path, body)
    assert answer.status_code == 400, answer.text[:300]
    error = answer.json()["error"]
    assert error["param"] == param
    assert "maximum context length is 100000 tokens" in error["message"]
    assert worked < CALM


def test_one_word_of_megabytes_is_one_token(server: RunningServer) -> None:
    body = {"prompt": "a" * MANY, "max_tokens": 1, "echo": True}
    answer, worked = answer_beside_others(server, "/v1/completions", body)
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json()["usage"]["prompt_tokens"] == 1
    assert answer.json()["choices"][0]["text"].startswith("aaaa")
    assert worked < CALM


def test_a_long_prompt_that_fits(server: RunningServer) -> None:
    assert server.complete("w5 " * 50_000, max_tokens=1)["usage"]["prompt_tokens"] == 50_000
    short = server.post("/tokenize", {"prompt": "w5 " * 20}).json()["tokens"]
    assert server.post("/tokenize", {"prompt": "w5 " * 20_000}).json()["tokens"] == short * 1000
