"""A server process of the tests, and what they ask it."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

SCRIPT = Path(__file__).with_name("run_server.py")
ENGINE = {"model": "demo", "max_model_len": 2048, "max_num_seqs": 4}
LIMIT = 240
"""Seconds of patience with a slow and busy machine; only a test that fails needs them."""


class RunningServer:
    """`run_server.py` in a process on a port that it finds itself, with a client for it."""

    port: int
    base: str

    def __init__(
        self, log: IO[bytes], engine: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None, **options: Any
    ) -> None:
        self.log = Path(log.name)
        arguments = [json.dumps({**ENGINE, **(engine or {})}), json.dumps({"port": 0, **options})]
        self.process = subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stdout=log, stderr=log)
        self.http = httpx.Client(timeout=LIMIT, verify=tls or True)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + LIMIT
        while not (served := re.search(r"Serving .* at (https?://127\.0\.0\.1:(\d+))", self.log.read_text())):
            assert self.process.poll() is None, f"the server ended early:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"the server is not ready after {LIMIT} s:\n{self.log.read_text()}"
            time.sleep(0.05)
        self.base, self.port = served[1], int(served[2])
        self.http.base_url = self.base
        assert self.http.get("/health").status_code == 200

    def stop(self) -> int:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(LIMIT)

    def post(self, path: str, body: dict[str, Any] | str | bytes, **headers: str) -> httpx.Response:
        content = body if isinstance(body, (str, bytes)) else json.dumps(body)
        return self.http.post(path, content=content, headers={"content-type": "application/json", **headers})

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        """A completion that has to work; greedy unless `fields` say otherwise."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, content: str, **fields: Any) -> dict[str, Any]:
        """A chat answer that has to work."""
        messages = [{"role": "user", "content": content}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 8, **fields}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def text(self, prompt: Any, **fields: Any) -> str:
        return str(self.complete(prompt, **fields)["choices"][0]["text"])

    def refused(self, path: str, body: dict[str, Any] | str | bytes, status: int = 400) -> dict[str, Any]:
        """OpenAI's error object of a request that has to fail."""
        answer = self.post(path, body)
        assert answer.status_code == status, (body, answer.text)
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return dict(error)

    def chunks(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a stream, which has to end with [DONE]."""
        with self.stream(path, body) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = list(read_events(answer.iter_lines()))
        assert events[-1] == "[DONE]", events
        return [json.loads(one) for one in events[:-1]]

    def stream(self, path: str, body: dict[str, Any]) -> Any:
        return self.http.stream("POST", path, json={"stream": True, **body})

    def metric(self, name: str, **labels: str) -> float:
        """A value of /metrics, summed over the labels that are not given."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(f"anychip:{name}{{") and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def wait_quiet(self) -> None:
        """Wait until nothing runs or waits."""
        self.wait_until(lambda: not (self.metric("num_requests_running") or self.metric("num_requests_waiting")))

    def wait_until(self, happened: Callable[[], object]) -> None:
        """Wait until something is the case."""
        deadline = time.monotonic() + LIMIT
        while not happened():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.05)

    @contextmanager
    def cut_short(self) -> Iterator[None]:
        """What is sent meanwhile ends early: nothing is left of it, and none of it came to its last token."""
        done = self.metric("request_success_total", finished_reason="length")
        yield
        self.wait_quiet()
        assert self.metric("request_success_total", finished_reason="length") == done

    def tokens(self, text: str) -> list[int]:
        return list(self.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"])

    def decode(self, token_ids: list[int]) -> str:
        return str(self.post("/detokenize", {"tokens": token_ids, "skip_special_tokens": True}).json()["prompt"])


def read_events(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line:
            assert line.startswith("data: "), line
            yield line.removeprefix("data: ")


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice of a stream."""
    pieces = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(piece["text"] if "text" in piece else piece["delta"].get("content") or "" for piece in pieces)


@contextmanager
def serving(folder: Path, engine: dict[str, Any] | None = None, **options: Any) -> Iterator[RunningServer]:
    """A ready server whose log is in `folder`; it has to end well."""
    with (folder / "log").open("wb") as log:
        server = RunningServer(log, engine, **options)
        try:
            server.wait_ready()
            yield server
        finally:
            code = server.stop()
    assert code == 0, server.log.read_text()
