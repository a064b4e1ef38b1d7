"""A server process for the kit, and a client of the standard library."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from anychip.testing.check import CheckFailedError, require
from anychip.testing.subject import Subject

HOST = "127.0.0.1"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
COMMAND = "from anychip.cli.main import main; main()"


class Served:
    """`anychip serve` with the tiny model. Use it in a `with`; `status` is the exit status afterwards."""

    def __init__(self, subject: Subject) -> None:
        self.status: int | None = None
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = int(probe.getsockname()[1])
        options = subject.options(dtype=subject.dtype, port=self.port)
        given = {name: value for name, value in options.items() if name != "model" and value is not None}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        command = [sys.executable, "-c", COMMAND, "serve", options["model"], *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self) -> Served:
        try:
            self._wait_ready()
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
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        require(answer.status == http.client.OK, f"/v1/completions answered {answer.status}: {text}")
        return text

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None:
                assert self._process.stderr is not None, "it was opened with a pipe"
                raise CheckFailedError(f"the server ended early:\n{self._process.stderr.read().decode()}")
            require(time.monotonic() < deadline, f"the server is not ready after {START_SECONDS:.0f} s")
            time.sleep(0.1)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self.status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
