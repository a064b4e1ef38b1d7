"""OpenTelemetry: one span a request, under the caller's own if it sent `traceparent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip.errors import UserError
from anychip_api.ended import ON_ENDED, Ended
from anychip_api.gate import HANDLER, OPEN_PATHS, route_path

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
_SERVER_ERROR = 500


class Traces:
    """Sends the spans of one server to a collector, over OTLP and HTTP, from a thread of its own."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise UserError("Traces need OpenTelemetry.", "Run `pip install 'anychip[otel]'`.") from None
        self._provider = TracerProvider(resource=Resource.create({"service.name": "anychip"}), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("anychip")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, scope: Scope) -> Span:
        """A span for the request of `scope`."""
        from opentelemetry.trace import SpanKind

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]
        attributes = {"http.request.method": method, "url.path": path, "anychip.request.id": scope["request_id"]}
        parent = self._propagator.extract(headers)
        return self._tracer.start_span(f"{method} {path}", parent, SpanKind.SERVER, attributes)

    def close(self) -> None:
        """Send what is left; waits for the collector."""
        self._provider.shutdown()


class Traced:
    """Middleware that gives each request but probes and scrapes its span."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or route_path(scope) in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        span = self._traces.start(scope)
        scope[ON_ENDED] = lambda ended: _describe(span, _OPERATIONS.get(scope.get(HANDLER, ""), "generate"), ended)

        async def traced_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_status(span, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, traced_send)
        finally:
            span.end()


def _note_status(span: Span, status: int) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        span.set_status(StatusCode.ERROR)


def _describe(span: Span, operation: str, ended: Ended) -> None:
    """The attributes of the `gen_ai` conventions, and vLLM's for latencies."""
    params = ended.params
    span.update_name(f"{operation} {ended.model}")
    span.set_attributes(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "anychip",
            "gen_ai.request.model": ended.model,
            "gen_ai.response.model": ended.model,
            "gen_ai.response.id": ended.request_id,
            "gen_ai.request.choice.count": params.n,
            "gen_ai.request.temperature": float(params.temperature),
            "gen_ai.request.top_p": float(params.top_p),
            "gen_ai.request.top_k": params.top_k,
            "gen_ai.usage.input_tokens": ended.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": ended.cached_tokens,
            "gen_ai.usage.output_tokens": ended.generated_tokens,
            "gen_ai.response.finish_reasons": ended.finish_reasons,
            "gen_ai.latency.time_in_queue": ended.queued,
            "gen_ai.latency.e2e": ended.total,
        }
    )
    if params.max_tokens is not None:
        span.set_attribute("gen_ai.request.max_tokens", params.max_tokens)
    if ended.first_token is not None:
        span.set_attribute("gen_ai.latency.time_to_first_token", ended.first_token)
