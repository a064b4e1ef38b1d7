"""Case I1: a client that closes its socket frees everything it had."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from tests.api.running import ENGINE, RunningServer

LONG = {"max_tokens": 1500, "ignore_eos": True}


def send(server: RunningServer, path: str, body: dict[str, Any]) -> socket.socket:
    """A raw request whose answer nobody reads."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(head.encode() + data)
    return connection


def wait_for(server: RunningServer, name: str, count: int) -> None:
    server.wait_until(lambda: server.metric(name) >= count)


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": False}, {"stream": True, "n": 4}, {"n": 4}])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_i1_while_it_runs(server: RunningServer, path: str, fields: dict[str, Any]) -> None:
    usage, aborted = (
        server.metric("kv_cache_usage_perc"),
        server.metric("request_success_total", finished_reason="abort"),
    )
    start = {"prompt": "Once"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}
    with server.cut_short(), send(server, path, {**start, **LONG, **fields}):
        wait_for(server, "num_requests_running", int(fields.get("n", 1)))
    assert server.metric("kv_cache_usage_perc") == usage
    assert server.metric("request_success_total", finished_reason="abort") == aborted + 1


def test_i1_while_it_waits(server: RunningServer) -> None:
    slots = int(ENGINE["max_num_seqs"])
    with server.cut_short(), send(server, "/v1/completions", {"prompt": "Once", "n": slots, **LONG}):
        wait_for(server, "num_requests_running", slots)
        queued = [send(server, "/v1/completions", {"prompt": "Two", "stream": True, **LONG}) for _ in range(3)]
        wait_for(server, "num_requests_waiting", 3)
        for connection in queued:
            connection.close()
        server.wait_until(lambda: server.metric("num_requests_waiting") == 0)
        assert server.metric("num_requests_running") == slots


def test_i1_a_batch_of_prompts(server: RunningServer) -> None:
    body = {"prompt": ["One", "Two", "Three"], "stream": True, **LONG}
    with server.cut_short(), send(server, "/v1/completions", body):
        wait_for(server, "num_requests_running", 3)


def test_i1_half_a_request(server: RunningServer) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    connection.close()
    server.wait_quiet()


def test_i1_many_at_once(server: RunningServer) -> None:
    with server.cut_short():
        connections = [
            send(server, "/v1/completions", {"prompt": f"Number {number}", "stream": bool(number % 2), **LONG})
            for number in range(20)
        ]
        wait_for(server, "num_requests_running", int(ENGINE["max_num_seqs"]))
        for connection in connections:
            connection.close()
