"""A server process of the tests, and what they ask it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

SCRIPT = Path(__file__).with_name("run_server.py")
ENGINE = {"model": "demo", "max_model_len": 2048, "max_num_seqs": 4}
START_LIMIT = 120
QUIET_LIMIT = 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RunningServer:
    """`run_server.py` in a process, with a client for it."""

    def __init__(
        self, log: IO[bytes], engine: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None, **options: Any
    ) -> None:
        self.port = options.setdefault("port", free_port())
        self.base = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.log = Path(log.name)
        arguments = [json.dumps({**ENGINE, **(engine or {})}), json.dumps(options)]
        self.process = subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stdout=log, stderr=log)
        self.http = httpx.Client(base_url=self.base, timeout=60, verify=tls or True)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended early:\n{self.log.read_text()}"
            try:
                if self.http.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError(f"the server is not ready after {START_LIMIT} s:\n{self.log.read_text()}")

    def stop(self) -> int:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(30)

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

    def wait_quiet(self, limit: float = QUIET_LIMIT) -> float:
        """Wait until nothing runs or waits; returns how long that took."""
        begin = time.monotonic()
        while self.metric("num_requests_running") or self.metric("num_requests_waiting"):
            assert time.monotonic() - begin < limit, "requests still run"
            time.sleep(0.05)
        return time.monotonic() - begin

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
