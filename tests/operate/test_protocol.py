"""HTTP as some clients speak it."""

from __future__ import annotations

import json
import socket

import pytest
from tests.api.running import RunningServer
from tests.api.test_case_i_disconnect import send, wait_for
from tests.operate.test_limits import until_closed

BODY = json.dumps({"prompt": "w5 w6 w7", "max_tokens": 2}).encode()
JAVA = (
    b"POST /v1/completions HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n%sHost: x\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    b"Content-Type: application/json\r\n\r\n"
)
"""As java.net.http.HttpClient sends it, unless it is told to speak HTTP/1.1."""

MEASURED = JAVA % b"Content-Length: %d\r\n" % len(BODY) + BODY
CHUNKED = JAVA % b"Transfer-Encoding: chunked\r\n" + b"5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (
    BODY[:5],
    len(BODY) - 5,
    BODY[5:],
)
LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [MEASURED, CHUNKED], ids=["measured", "chunked"])
@pytest.mark.parametrize("cut", [None, -1, -len(BODY), -len(BODY) - 20])
def test_an_offer_of_another_protocol_is_not_taken_and_the_request_answered(
    plain_server: RunningServer, request_bytes: bytes, cut: int | None
) -> None:
    with socket.create_connection(("127.0.0.1", plain_server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (request_bytes[:cut], request_bytes[cut:] if cut else b"", request_bytes, LAST):
            connection.sendall(part)
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.count(b'"prompt_tokens":3') == 2


def test_a_web_socket_is_not_opened(plain_server: RunningServer) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    with socket.create_connection(("127.0.0.1", plain_server.port)) as connection:
        connection.sendall(head + LAST)
        assert until_closed(connection).count(b"HTTP/1.1 200 OK") == 2
    assert "websockets" not in plain_server.log.read_text()


def test_a_client_that_leaves_is_no_error_of_the_server(plain_server: RunningServer) -> None:
    def answered(status: str) -> str:
        lines = plain_server.http.get("/metrics").text.splitlines()
        wanted = f'http_requests_total{{handler="/v1/completions",method="POST",status="{status}"}}'
        return next((line.removeprefix(wanted) for line in lines if line.startswith(wanted)), "0")

    before, errors = answered("499"), answered("503")
    with plain_server.cut_short():
        with send(plain_server, "/v1/completions", {"prompt": "w5", "max_tokens": 150_000, "ignore_eos": True}):
            wait_for(plain_server, "num_requests_running", 1)
        plain_server.wait_until(lambda: answered("499") != before)
    assert answered("503") == errors


def test_a_body_that_is_encoded(plain_server: RunningServer) -> None:
    answer = plain_server.post("/v1/completions", b"\x1f\x8b\x08\x00", **{"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert "gzip" in answer.json()["error"]["message"]


def test_a_client_that_leaves_with_requests_before_their_answers(plain_server: RunningServer) -> None:
    body = json.dumps({"prompt": "w5", "max_tokens": 150_000, "ignore_eos": True, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with plain_server.cut_short(), socket.create_connection(("127.0.0.1", plain_server.port)) as connection:
        connection.sendall((head % len(body) + body) * 3)
        wait_for(plain_server, "num_requests_running", 1)
    assert "Exception in ASGI application" not in plain_server.log.read_text()
