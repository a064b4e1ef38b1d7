"""Starting and stopping a server, and its engine's death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.running import LIMIT, SCRIPT, RunningServer, read_events
from tests.cli.command import wait_for_child

from anychip import AsyncEngine
from anychip.config import make_config
from anychip.errors import UserError
from anychip_api.app import create_app
from anychip_api.listen import bind, listen
from anychip_api.options import ServerOptions

LONG = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True}


@contextmanager
def running(folder: Path, engine: dict[str, Any] | None = None, **options: Any) -> Iterator[RunningServer]:
    with (folder / "log").open("wb") as log:
        server = RunningServer(log, engine, **options)
        try:
            server.wait_ready()
            yield server
        finally:
            server.stop()


def kill_engine(server: RunningServer) -> None:
    os.kill(wait_for_child(server.process.pid), signal.SIGKILL)


def test_a_port_in_use_is_found_before_anything_loads() -> None:
    """Nothing is said of the model, which does not exist."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(SCRIPT), json.dumps({"model": "/no/such/model"}), json.dumps({"port": port})]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2
    assert f"Port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_addresses_are_sentences() -> None:
    with pytest.raises(UserError, match="--host"):
        bind("no-such-host.invalid", 0)
    with pytest.raises(UserError, match="--host"):
        bind("192.0.2.1", 0)


def test_of_two_that_bound_one_port_the_second_is_told() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port) as second:
            listen(first)
            with pytest.raises(UserError, match="--port"):
                listen(second)


def test_a_model_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), json.dumps({"model": str(tmp_path / "none")}), json.dumps({"port": 0})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_server_imports_no_torch() -> None:
    code = (
        "import sys, anychip_api.web, anychip_api.server; print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_sigterm_while_loading(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        server = RunningServer(log)
        wait_for_child(server.process.pid)
        server.process.terminate()
        assert server.process.wait(LIMIT) == 0, server.log.read_text()


def test_keys_names_prefix_and_a_graceful_stop(tmp_path: Path) -> None:
    options = {"api_key": ["one", "two"], "served_model_name": ["big", "small"], "metrics_prefix": "vllm:"}
    with running(tmp_path, **options, strict_fields=True, shutdown_timeout=30, log_requests=True) as server:
        _check_keys(server)
        _check_names(server)
        assert "vllm:num_requests_running" in server.http.get("/metrics").text
        _check_graceful_stop(server)
        assert "prompt tokens" in server.log.read_text()


def _check_keys(server: RunningServer) -> None:
    for path in ("/health", "/metrics", "/version"):
        assert server.http.get(path).status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "one"}, {"authorization": "Bearer"}):
        answer = server.http.get("/v1/models", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["x-request-id"]
    assert server.post("/tokenize", {"prompt": "Hi"}).status_code == 401
    assert server.http.get("/v1/models", headers={"authorization": "bearer two"}).status_code == 200
    server.http.headers["authorization"] = "Bearer one"


def _check_names(server: RunningServer) -> None:
    assert [model["id"] for model in server.http.get("/v1/models").json()["data"]] == ["big", "small"]
    assert server.complete("Hi", model="small")["model"] == "small"
    assert server.complete("Hi")["model"] == "big"
    server.refused("/v1/completions", {"prompt": "Hi", "model": "demo"}, status=404)
    assert server.refused("/v1/completions", {"prompt": "Hi", "teperature": 1})["param"] == "teperature"
    assert server.post("/v1/completions", {"prompt": "Hi", "user": "me"}).headers["x-anychip-ignored"] == "user"


def _check_graceful_stop(server: RunningServer) -> None:
    request = {"prompt": "Once", "max_tokens": 60, "ignore_eos": True}
    with server.stream("/v1/completions", request) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        events = list(read_events(lines))
    assert events[-1] == "[DONE]"
    assert server.process.wait(LIMIT) == 0


def test_what_outlasts_the_shutdown_timeout_is_aborted_with_an_error(tmp_path: Path) -> None:
    with running(tmp_path, shutdown_timeout=0.5) as server, server.stream("/v1/completions", LONG) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGINT)
        events = list(read_events(lines))
        assert json.loads(events[-1])["error"]["code"] == "aborted"
        assert server.process.wait(LIMIT) == 0


def test_a_dead_engine_ends_every_request_and_the_server(tmp_path: Path) -> None:
    with (
        running(tmp_path) as server,
        ThreadPoolExecutor() as pool,
        server.stream("/v1/completions", LONG) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        whole = pool.submit(server.post, "/v1/completions", {**LONG, "n": 4})
        server.wait_until(lambda: server.metric("num_requests_waiting") > 0)  # all rows run, and one waits
        kill_engine(server)
        events = list(read_events(lines))
        assert json.loads(events[-1])["error"]["code"] == "engine_dead"
        assert whole.result(LIMIT).status_code == 503
        assert whole.result().json()["error"]["code"] == "engine_dead"
        assert server.process.wait(LIMIT) == 1, server.log.read_text()
        assert "ended by SIGKILL, as the system does where memory is short" in server.log.read_text()


def test_two_applications_in_one_process_and_a_dead_engine() -> None:
    asyncio.run(_two_applications())


async def _two_applications() -> None:
    engine = await AsyncEngine.create(make_config({"model": "demo", "max_model_len": 256}))
    options = [ServerOptions(), ServerOptions(metrics_prefix="vllm:", served_model_name=("other",))]
    clients = [
        httpx.AsyncClient(transport=httpx.ASGITransport(create_app(engine, one)), base_url="http://test")
        for one in options
    ]
    try:
        for client, prefix in zip(clients, ("anychip:", "vllm:"), strict=True):
            answer = await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
            assert answer.status_code == 200, answer.text
            page = (await client.get("/metrics")).text
            assert f"{prefix}prompt_tokens_total" in page
            assert (await client.get("/health")).status_code == 200
        await engine.close()
        for client in clients:
            assert (await client.get("/health")).status_code == 503
            answer = await client.post("/v1/completions", json={"prompt": "Hi"})
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "engine_dead"
    finally:
        for client in clients:
            await client.aclose()
        await engine.close()
