"""The description of our routes for /openapi.json; built when it is asked for, to keep the start short."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from anychip_api.anthropic.schema import CountTokensRequest, MessagesRequest
from anychip_api.batch.schema import BatchRequest
from anychip_api.pooling.schemas import (
    ClassificationRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    VectorRequest,
)
from anychip_api.responses.schema import ResponsesRequest
from anychip_api.schemas import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Schema,
    TokenizeRequest,
    TokensRequest,
)

BODIES: dict[str, type[Schema]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/inference/v1/generate": TokensRequest,
    "/v1/batches": BatchRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/v1/score": ScoreRequest,
    "/score": ScoreRequest,
    "/v1/rerank": RerankRequest,
    "/v2/rerank": RerankRequest,
    "/rerank": RerankRequest,
    "/classify": ClassificationRequest,
    "/pooling": VectorRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
"""What each route of POST takes."""

_REQUIRED_TEXT = {"required": True, "schema": {"type": "string"}}
_REFERENCE = "#/components/schemas/{model}"


def describe(base: dict[str, Any], routes: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`base` with our (method, path) routes and the schemas of their bodies."""
    paths: dict[str, Any] = dict(base.get("paths", {}))
    schemas: dict[str, Any] = dict(base.get("components", {}).get("schemas", {}))
    for method, path in routes:
        paths.setdefault(path.replace(":path", ""), {})[method.lower()] = _operation(method, path, schemas)
    return {**base, "paths": paths, "components": {**base.get("components", {}), "schemas": schemas}}


def _operation(method: str, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": path, "responses": {"200": {"description": "The answer."}}}
    body = BODIES.get(path) if method == "POST" else None
    if body is not None:
        schema = body.model_json_schema(ref_template=_REFERENCE)
        schemas.update(schema.pop("$defs", {}))
        schemas[body.__name__] = schema
        reference = {"$ref": _REFERENCE.format(model=body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    names = re.findall(r"{(\w+)", path)
    if names:
        operation["parameters"] = [{"name": name, "in": "path", **_REQUIRED_TEXT} for name in names]
    return operation
