"""What the server can be told, apart from the engine's own config."""

from __future__ import annotations

from typing import Annotated

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Word = Annotated[str, msgspec.Meta(min_length=1)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the HTTP server; the command line makes a flag of each."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    api_key: tuple[Word, ...] = ()
    """Keys of which every request has to send one; none leaves the server open."""
    served_model_name: tuple[Word, ...] = ()
    """Names that requests may use for the model, the first one in answers; without any, the model as it was given."""
    metrics_prefix: str = "anychip:"
    """What the names in /metrics begin with; `vllm:` suits dashboards made for vLLM."""
    strict_fields: bool = False
    """Refuse a request with a field that is not known, rather than name it in the header x-anychip-ignored."""
    shutdown_timeout: Seconds = 30.0
    """Seconds that open requests may take to finish once the server was told to stop."""
    keep_alive_timeout: Positive = 65
    """Seconds that an idle connection stays open."""
    client_timeout: PositiveSeconds = 60.0
    """Seconds that a client may take to send a request's head, to go on with its body, or to read what waits for it."""
    max_body_bytes: Positive = 64 * 1024 * 1024
    """Largest request body."""
    max_waiting: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Most sequences that may wait for a place in the batch; a request beyond them gets 429. None has no limit."""
    rate_limit: Positive | None = None
    """Most requests a minute of each API key, or of each address without keys; more get 429. None has no limit."""
    request_timeout: PositiveSeconds | None = None
    """Seconds after which a request that has not finished ends with an error. None has no limit."""
    max_stored_responses: Annotated[int, msgspec.Meta(ge=0)] = 1000
    """Responses of /v1/responses that are kept, in memory, to be read again and gone on with."""
    max_stored_response_bytes: Annotated[int, msgspec.Meta(ge=0)] = 256 * 1024 * 1024
    """Bytes of all responses that are kept."""
    max_file_bytes: Positive = 200 * 1024 * 1024
    """Largest file that may be uploaded for a batch."""
    max_stored_file_bytes: Positive = 1024**3
    """Bytes of all uploaded files and results of batches; uploads beyond are refused."""
    batch_concurrency: Positive = 64
    """Requests of all batches that run at a time."""
    tool_call_parser: str | None = None
    """How the model writes tool calls; without it the chat template decides, and `none` leaves them as text."""
    reasoning_parser: str | None = None
    """How the model marks its reasoning; without it the chat template decides, and `none` leaves it in the answer."""
    log_requests: bool = False
    """Print one line when a request ends."""
    otlp_traces_endpoint: str | None = None
    """Where to send OpenTelemetry traces, such as http://localhost:4318/v1/traces; needs `anychip[otel]`."""
    root_path: Annotated[str, msgspec.Meta(pattern="^(/[^/?#]+)*$")] = ""
    """Path that a proxy in front of the server adds to each route, such as /llm."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may use the server from a browser (CORS); `*` allows any."""
    allowed_methods: tuple[str, ...] = ("GET", "POST", "DELETE")
    """HTTP methods that such pages may use."""
    allowed_headers: tuple[str, ...] = ("*",)
    """Headers that such pages may send."""
    allow_credentials: bool = False
    """Let such pages send cookies."""
    ssl_certfile: str | None = None
    """Certificate chain in PEM; the server then speaks HTTPS."""
    ssl_keyfile: str | None = None
    """The certificate's private key, if it is not in the same file."""
