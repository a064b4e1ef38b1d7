"""What a server tells about itself: JSON logs, a line a request, traces."""

from __future__ import annotations

import gzip
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.api.running import RunningServer
from tests.operate.conftest import Serve, write_null_model

from anychip.errors import UserError
from anychip.log import JsonFormatter
from anychip_api.tracing import Traces

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"prompt": "w5 w6", "max_tokens": 3, "ignore_eos": True}


class Collector(ThreadingHTTPServer):
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        data = gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data
        request = ExportTraceServiceRequest.FromString(data)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        del arguments


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    read = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        read[pair.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return read


def test_a_span_and_a_json_line_a_request(serve: Serve, collector: Collector) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
    with serve({"log_format": "json"}, otlp_traces_endpoint=endpoint, log_requests=True) as server:
        parent = {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "mine"}
        assert server.post("/v1/completions", BODY, **parent).status_code == 200
        server.chunks("/v1/chat/completions", {"messages": [{"role": "user", "content": "w5"}], "max_tokens": 2})
        assert server.post("/v1/completions", {**BODY, "n": 0}).status_code == 400
        server.http.get("/health")
    first, chat, refused = sorted(collector.spans, key=lambda span: span.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, SPAN)
    assert first.name == "text_completion null"
    found = attributes(first)
    assert found["gen_ai.usage.input_tokens"] == 2
    assert found["gen_ai.usage.output_tokens"] == 3
    assert found["gen_ai.response.id"] == "cmpl-mine"
    assert found["gen_ai.response.finish_reasons"] == ["length"]
    assert 0 < found["gen_ai.latency.time_to_first_token"] <= found["gen_ai.latency.e2e"]
    assert chat.name == "chat null"
    assert not chat.parent_span_id
    assert attributes(refused)["http.response.status_code"] == 400
    assert "gen_ai.usage.input_tokens" not in attributes(refused)
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert {"time", "level", "message"} <= set(lines[0])
    (line,) = [line for line in lines if line.get("request_id") == "cmpl-mine"]
    assert (line["prompt_tokens"], line["generated_tokens"], line["finish_reasons"]) == (2, 3, ["length"])


def test_a_collector_that_is_away_stops_nothing(serve: Serve) -> None:
    with serve(otlp_traces_endpoint="http://127.0.0.1:9/v1/traces") as server:
        server.complete("w5")
        begin = time.monotonic()
    assert time.monotonic() - begin < 30, "by itself it would try for a minute"


def test_a_missing_library_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(UserError, match=r"anychip\[otel\]"):
        Traces("http://127.0.0.1:9")


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("anychip", logging.ERROR, __file__, 1, "It %s.", ("failed",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["message"]) == ("error", "It failed.")
    assert "ValueError: two\nlines" in entry["exception"]


def test_a_server_says_what_it_is(plain_server: RunningServer) -> None:
    info = plain_server.http.get("/server_info").json()
    assert (info["model"], info["device"], info["chat"]) == ("null", "null:0", True)
    assert info["ops"] == []
    page = plain_server.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert '<base href="/">' in page.text
    assert plain_server.http.get("/page/main.js").headers["content-type"].startswith("text/javascript")
    for name in ("none.js", "__init__.py", "..%2fgate.py"):
        assert plain_server.http.get(f"/page/{name}").status_code == 404


def test_steps_may_take_a_time(serve: Serve, tmp_path: Path) -> None:
    model = write_null_model(tmp_path, step_seconds=0.02)
    with serve({"model": str(model)}) as server:
        begin = time.monotonic()
        server.complete("w5", max_tokens=20, ignore_eos=True)
        assert time.monotonic() - begin >= 0.4


def test_what_is_prepared_while_idle_is_counted(serve: Serve, tmp_path: Path) -> None:
    """A start does not wait for it, and a request for one thing of it at most."""
    model = write_null_model(tmp_path, step_seconds=0.02, unprepared=100_000)
    with serve({"model": str(model)}) as server:
        for tokens in (1, 5):
            count = server.metric("prepared_steps")
            while server.metric("prepared_steps") < count + 3:
                time.sleep(0.01)
            server.complete("w5", max_tokens=tokens, ignore_eos=True)
        assert server.metric("prepared_steps") < 100_000


def test_nothing_is_left_to_prepare(serve: Serve, tmp_path: Path) -> None:
    model = write_null_model(tmp_path, unprepared=3)
    with serve({"model": str(model)}) as server:
        while "prepared while idle: 3 shapes of steps" not in server.log.read_text():
            time.sleep(0.01)
        server.complete("w5")
        assert server.metric("prepared_steps") == 3
