"""What is served and how it is doing: /v1/models, /health, /ping, /load, /version, /server_info, /metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from anychip.version import __version__
from anychip_api.errors import engine_dead
from anychip_api.service import Service


async def list_models(service: Service, request: Request) -> Response:
    """Every name of the model."""
    del request
    models = [_model(service, name) for name in service.names]
    pages = {"has_more": False, "first_id": models[0]["id"], "last_id": models[-1]["id"]}
    return _json({"object": "list", "data": models, **pages})


async def get_model(service: Service, request: Request) -> Response:
    """One name of the model."""
    return _json(_model(service, service.model_name(request.path_params["model"])))


async def health(service: Service, request: Request) -> Response:
    """200 while the engine's process lives, else 503."""
    del request
    return engine_dead().response() if service.engine.dead else Response(status_code=HTTPStatus.OK)


async def load(service: Service, request: Request) -> Response:
    """Requests that generate now, for a router that chooses among servers."""
    del request
    return _json({"server_load": len(service.open)})


async def version(service: Service, request: Request) -> Response:
    """The version of anychip."""
    del service, request
    return _json({"version": __version__})


async def server_info(service: Service, request: Request) -> Response:
    """The engine's sizes, its device, and how each op runs there."""
    del request
    info = service.engine.info
    ops = [{"op": op, "runs_by": how, "reason": reason} for op, how, reason in info.ops]
    return _json(
        {
            "version": __version__,
            "model": service.names[0],
            "device": info.device,
            "dtype": info.dtype,
            "max_model_len": info.max_model_len,
            "max_num_seqs": info.max_num_seqs,
            "kv_cache_bytes": info.kv_cache_bytes,
            "weight_bytes": info.weight_bytes,
            "chat": service.engine.chat_template is not None,
            "notes": info.notes,
            "ops": ops,
        }
    )


async def metrics(service: Service, request: Request) -> Response:
    """Prometheus metrics."""
    del request
    return Response(service.metrics.page(), headers={"content-type": CONTENT_TYPE_LATEST})


def _model(service: Service, name: str) -> dict[str, Any]:
    """The members of OpenAI's model object, Anthropic's and vLLM's."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": service.created,
        "created_at": datetime.fromtimestamp(service.created, UTC).isoformat(),
        "owned_by": "anychip",
        "root": service.engine.config.model,
        "parent": None,
        "max_model_len": service.engine.info.max_model_len,
    }


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
