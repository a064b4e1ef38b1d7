"""Limits: how many wait, how often one asks, how long a request may take, how slow a client may be."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.api.running import LIMIT, RunningServer, read_events
from tests.api.test_case_i_disconnect import send, wait_for
from tests.operate.conftest import Serve

from anychip.errors import UserError
from anychip_api.options import ServerOptions
from anychip_api.rate_limit import RateLimit
from anychip_api.tls import tls_context

ENDLESS = {"prompt": "w5", "max_tokens": 150_000, "ignore_eos": True}
SLOW = 3.0
"""Seconds, more than a busy machine keeps a test waiting between two lines."""
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module")
def server(serve: Serve) -> Iterator[RunningServer]:
    options = {
        "max_waiting": 1,
        "client_timeout": SLOW,
        "log_requests": True,
        "root_path": "/llm",
        "allowed_origins": ["http://a.example"],
    }
    with serve({"max_num_seqs": 2}, **options) as server:
        yield server


def test_a_full_queue_refuses_and_says_when_to_come_back(server: RunningServer) -> None:
    with server.cut_short(), send(server, "/v1/completions", {**ENDLESS, "n": 2}):
        wait_for(server, "num_requests_running", 2)
        with send(server, "/v1/completions", ENDLESS):
            wait_for(server, "num_requests_waiting", 1)
            answer = server.post("/v1/completions", ENDLESS)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        error = answer.json()["error"]
        assert error["code"] == "queue_full"
        assert "--max-waiting" in error["message"]
    server.complete("w5")


def test_a_deadline_of_the_request(server: RunningServer) -> None:
    begin = time.monotonic()
    answer = server.post("/v1/completions", {**ENDLESS, "request_timeout": 0.3})
    assert time.monotonic() - begin >= 0.3
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "request_timeout"
    with server.stream("/v1/completions", {**ENDLESS, "request_timeout": 0.3}) as stream:
        events = list(read_events(stream.iter_lines()))
    assert all(json.loads(event)["choices"] for event in events[:-1])
    assert json.loads(events[-1])["error"]["code"] == "request_timeout"
    server.wait_quiet()
    for wrong in (0, -1, "1", 1e999):
        body = json.dumps({**ENDLESS, "request_timeout": wrong}).replace("Infinity", "1e999")
        assert server.refused("/v1/completions", body)["param"] == "request_timeout"


def until_closed(connection: socket.socket) -> bytes:
    """What the other side says before it closes."""
    data = b""
    connection.settimeout(LIMIT)
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("start", [b"", b"POST /v1/comp", HEAD, HEAD + b"x: " + b"y" * 1000])
def test_a_head_that_does_not_end(server: RunningServer, start: bytes) -> None:
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(start)
        until_closed(connection)
    assert time.monotonic() - begin > SLOW * 0.9


def trickle(connection: socket.socket, line: bytes) -> None:
    """Send a line again and again, for as long as the other side takes it."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        connection.sendall(line)
        time.sleep(0.1)


def test_a_head_that_trickles(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD)
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            trickle(connection, b"a: b\r\n")


def test_a_body_that_trickles(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + b"content-type: application/json\r\ncontent-length: 100000\r\n\r\n{")
        connection.setblocking(False)
        deadline, data = time.monotonic() + LIMIT, b""
        while not data and time.monotonic() < deadline:
            connection.send(b" ")
            time.sleep(0.1)
            with suppress(BlockingIOError):
                data = connection.recv(65536)
    assert b"408" in data.split(b"\r\n")[0]
    assert b'"message"' in data


def test_a_head_without_measure(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        try:
            for number in range(4000):
                connection.sendall(b"x-%d: %s\r\n" % (number, b"y" * 100) if number else HEAD)
        except OSError:
            pass
        data = until_closed(connection)
    assert data == b"" or b"431" in data.split(b"\r\n")[0]


def test_a_client_that_does_not_read_is_sent_away(server: RunningServer) -> None:
    body = json.dumps({**ENDLESS, "stream": True}).encode()
    head = HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)

    def ended(reason: str) -> float:
        return server.metric("request_success_total", finished_reason=reason)

    aborted, deadline = ended("abort"), time.monotonic() + LIMIT
    while ended("abort") == aborted:
        # Tokens that wait are sent together: now and then the kernel's buffers take all, and nothing is late.
        assert time.monotonic() < deadline, "it was never sent away"
        whole = ended("length")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head + body)
            server.wait_until(lambda whole=whole: ended("abort") > aborted or ended("length") > whole)
    server.wait_quiet()


def test_what_is_not_http(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        data = until_closed(connection)
    assert data.startswith(b"HTTP/1.1 400")
    assert json.loads(data.split(b"\r\n\r\n")[1])["error"]["message"]


def test_500_connections_that_do_nothing_hurt_nobody(server: RunningServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    try:
        for connection in idle[::2]:
            connection.sendall(HEAD)
        for connection in idle[::3]:
            connection.shutdown(socket.SHUT_WR)
        server.complete("w5")
    finally:
        for connection in idle:
            connection.close()


def test_a_root_path_may_be_stripped_or_not(server: RunningServer) -> None:
    for path in ("/v1/models", "/llm/v1/models", "/llm/health"):
        assert server.http.get(path).status_code == 200
    assert server.http.get("/other/v1/models").status_code == 404
    assert "/llm/openapi.json" in server.http.get("/llm/docs").text


def test_pages_of_other_sites(server: RunningServer) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    allowed = server.http.options("/v1/completions", headers={**asks, "origin": "http://a.example"})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "http://a.example"
    assert server.http.options("/v1/completions", headers={**asks, "origin": "http://b.example"}).status_code == 400
    answer = server.http.get("/v1/models", headers={"origin": "http://b.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_a_rate_of_each_key(serve: Serve) -> None:
    with serve(rate_limit=3, api_key=["one", "two"]) as server:
        body = {"prompt": "w5", "max_tokens": 1}
        answers = [server.post("/v1/completions", body, authorization="Bearer one") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"
        assert server.post("/v1/completions", body, authorization="Bearer two").status_code == 200
        assert server.http.get("/v1/models", headers={"authorization": "Bearer one"}).status_code == 200


def test_a_bucket_refills() -> None:
    limit = RateLimit(60)
    assert [limit.take(b"a", 0.0) for _ in range(60)] == [0.0] * 60
    assert limit.take(b"a", 0.0) == pytest.approx(1.0)
    assert limit.take(b"a", 0.5) == pytest.approx(0.5)
    assert limit.take(b"a", 1.01) == 0.0
    assert limit.take(b"b", 1.01) == 0.0


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 and its key."""
    names = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]]
    subprocess.run(command, check=True, capture_output=True)
    return names


def test_https(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(cafile=cert)
    with serve(ssl_certfile=cert, ssl_keyfile=key, tls=context) as server:
        assert server.text("w5", max_tokens=2)
        with pytest.raises(httpx.TransportError):
            httpx.get(server.base.replace("https", "http") + "/health")


def test_wrong_certificates_are_sentences(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    (tmp_path / "other").write_text("nothing")
    for options in (
        {"ssl_keyfile": key},
        {"ssl_certfile": str(tmp_path / "none")},
        {"ssl_certfile": cert},
        {"ssl_certfile": cert, "ssl_keyfile": str(tmp_path / "other")},
    ):
        with pytest.raises(UserError, match="--ssl-"):
            tls_context(ServerOptions(**options))
