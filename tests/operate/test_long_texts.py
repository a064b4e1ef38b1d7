"""Texts of megabytes: refused in time where they cannot fit, and nobody else waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.api.running import RunningServer
from tests.operate.conftest import Serve

MANY = 3_000_000
"""Words; ten megabytes."""
CALM = 0.7
"""Seconds that another's short request may take meanwhile; tokenized on the event loop, such a text takes 5."""


@pytest.fixture(scope="module")
def server(serve: Serve) -> Iterator[RunningServer]:
    with serve({"max_model_len": 100_000}) as server:
        yield server


def latencies_during(server: RunningServer, path: str, body: dict[str, object]) -> tuple[httpx.Response, list[float]]:
    """The answer to `body`, and how long short requests took until it came."""
    data, taken = json.dumps(body).encode(), []
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.base, timeout=60) as other:
        answer = pool.submit(other.post, path, content=data, headers={"content-type": "application/json"})
        while not answer.done():
            begin = time.monotonic()
            server.complete("w5", max_tokens=1)
            taken.append(time.monotonic() - begin)
        return answer.result(), taken


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
    answer, taken = latencies_during(server, path, body)
    assert answer.status_code == 400, answer.text[:300]
    error = answer.json()["error"]
    assert error["param"] == param
    assert "maximum context length is 100000 tokens" in error["message"]
    assert max(taken, default=0.0) < CALM


def test_one_word_of_megabytes_is_one_token(server: RunningServer) -> None:
    body = {"prompt": "a" * MANY, "max_tokens": 1, "echo": True}
    answer, taken = latencies_during(server, "/v1/completions", body)
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json()["usage"]["prompt_tokens"] == 1
    assert answer.json()["choices"][0]["text"].startswith("aaaa")
    assert max(taken, default=0.0) < CALM


def test_a_long_prompt_that_fits(server: RunningServer) -> None:
    assert server.complete("w5 " * 50_000, max_tokens=1)["usage"]["prompt_tokens"] == 50_000
    short = server.post("/tokenize", {"prompt": "w5 " * 20}).json()["tokens"]
    assert server.post("/tokenize", {"prompt": "w5 " * 20_000}).json()["tokens"] == short * 1000
