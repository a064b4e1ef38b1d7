"""What the server can be told, apart from the engine's own config."""

from __future__ import annotations

from typing import Annotated

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the HTTP server; the command line makes a flag of each."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    api_key: tuple[str, ...] = ()
    """Keys of which every request has to send one; none leaves the server open."""
    served_model_name: tuple[str, ...] = ()
    """Names that requests may use for the model, the first one in answers; without any, the model as it was given."""
    metrics_prefix: str = "anychip:"
    """What the names in /metrics begin with; `vllm:` suits dashboards made for vLLM."""
    strict_fields: bool = False
    """Refuse a request with a field that is not known, rather than name it in the header x-anychip-ignored."""
    shutdown_timeout: Seconds = 30.0
    """Seconds that open requests may take to finish once the server was told to stop."""
    keep_alive_timeout: Positive = 65
    """Seconds that an idle connection stays open."""
    max_body_bytes: Positive = 64 * 1024 * 1024
    """Largest request body."""
    log_requests: bool = False
    """Print one line when a request ends."""
