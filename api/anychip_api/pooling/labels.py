"""POST /classify, in vLLM's shape."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.pooling import Vector
from anychip.pooling_params import PoolingParams
from anychip_api.body import read_schema
from anychip_api.pooling.embeddings import read_input
from anychip_api.pooling.run import Work, respond, run
from anychip_api.pooling.schemas import ClassificationRequest
from anychip_api.service import Service


async def classify(service: Service, request: Request) -> Response:
    """A probability for each of the model's labels, for each text."""
    body, headers = await read_schema(service, request, ClassificationRequest)
    model = service.model_name(body.model)
    params = PoolingParams(truncate_prompt_tokens=body.truncate_prompt_tokens, use_activation=body.use_activation)
    found = await run(service, request, body, Work(read_input(body.input), params, "classify", "input"))
    vectors = service.engine.vectors
    answer = {
        "id": f"classify-{request.scope['request_id']}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            _entry(index, vectors.activated(vector, params), vectors.labels) for index, vector in enumerate(found.raw)
        ],
        "usage": found.usage,
    }
    return respond(answer, headers)


def _entry(index: int, probabilities: Vector, labels: list[str]) -> dict[str, Any]:
    return {
        "index": index,
        "label": labels[int(probabilities.argmax())],
        "probs": probabilities.tolist(),
        "num_classes": len(labels),
    }
