"""A server process for the kit, and a client of the standard library."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.testing.check import CheckFailedError, require
from anychip.testing.subject import Subject

HOST = "127.0.0.1"
START_SECONDS = 240.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05
COMMAND = "from anychip.cli.main import main; main()"


class Served:
    """`anychip serve` with the tiny model. Use it in a `with`; `status` is the exit status afterwards."""

    def __init__(self, subject: Subject) -> None:
        self.status: int | None = None
        options = subject.options(dtype=subject.dtype, port=0, log_level="info")
        given = {name: value for name, value in options.items() if name != "model" and value is not None}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        command = [sys.executable, "-c", COMMAND, "serve", options["model"], *flags]
        self._log = Path(options["model"]).with_name("serve.log")
        with self._log.open("wb") as stream:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream)

    def __enter__(self) -> Served:
        try:
            self._port = self._wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def complete(self, body: Mapping[str, Any]) -> str:
        """The text of /v1/completions."""
        text: str = json.loads(self._post(body))["choices"][0]["text"]
        return text

    def stream(self, body: Mapping[str, Any]) -> str:
        """The joined text of a streamed completion, which must end with [DONE]."""
        lines = [line.removeprefix("data: ") for line in self._post({**body, "stream": True}).splitlines() if line]
        require(lines[-1] == "[DONE]", f"the stream ended with {lines[-1]!r}")
        events = [json.loads(line) for line in lines[:-1]]
        return "".join(choice["text"] for event in events for choice in event["choices"])

    def _post(self, body: Mapping[str, Any]) -> str:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=START_SECONDS)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        require(answer.status == http.client.OK, f"/v1/completions answered {answer.status}: {text}")
        return text

    def _wait_ready(self) -> int:
        """The port, which the server finds itself, once it says that it serves there."""
        deadline = time.monotonic() + START_SECONDS
        while not (served := re.search(rf"http://{HOST}:(\d+)", self._log.read_text())):
            if self._process.poll() is not None:
                raise CheckFailedError(f"the server ended early:\n{self._log.read_text()}")
            require(time.monotonic() < deadline, f"the server is not ready after {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        return int(served[1])

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self.status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
