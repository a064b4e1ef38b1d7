"""POST /v1/embeddings, and /pooling, which gives what any pooling model makes of a text."""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.pooling import Vector
from anychip.errors import RequestError
from anychip.pooling_params import PoolingParams
from anychip_api.body import read_schema
from anychip_api.completions import read_prompts
from anychip_api.generation import Prompt
from anychip_api.pooling.run import Work, respond, run
from anychip_api.pooling.schemas import EmbeddingRequest, Encoding, VectorRequest
from anychip_api.sampling import renamed
from anychip_api.service import Service


async def create_embeddings(service: Service, request: Request) -> Response:
    """The embedding of each text, in OpenAI's shape."""
    body, headers = await read_schema(service, request, EmbeddingRequest)
    model = service.model_name(body.model)
    if body.normalize is not None and body.use_activation not in (None, body.normalize):
        raise RequestError("normalize and use_activation differ.", "normalize", "Send one of them.")
    activation = body.use_activation if body.normalize is None else body.normalize
    params = PoolingParams(
        truncate_prompt_tokens=body.truncate_prompt_tokens, dimensions=body.dimensions, use_activation=activation
    )
    work = Work(read_input(body.input), params, "embed", "input", body.prompt_name)
    found = await run(service, request, body, work)
    finish = service.engine.vectors.embedding
    data = [
        {"object": "embedding", "index": index, "embedding": encoded(finish(vector, params), body.encoding_format)}
        for index, vector in enumerate(found.raw)
    ]
    return respond({**_head(request, "embd", model), "data": data, "usage": found.usage}, headers)


async def pool(service: Service, request: Request) -> Response:
    """What the model makes of each text: an embedding, or its labels' values."""
    body, headers = await read_schema(service, request, VectorRequest)
    model = service.model_name(body.model)
    params = PoolingParams(
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        dimensions=body.dimensions,
        use_activation=body.use_activation,
    )
    vectors = service.engine.vectors
    task = vectors.plain_task
    found = await run(service, request, body, Work(read_input(body.input), params, task, "input", body.prompt_name))
    finish = vectors.embedding if task == "embed" else vectors.activated
    data = [
        {"object": "pooling", "index": index, "data": encoded(finish(vector, params), body.encoding_format)}
        for index, vector in enumerate(found.raw)
    ]
    return respond({**_head(request, "pool", model), "data": data, "usage": found.usage}, headers)


def read_input(given: Any) -> list[Prompt]:
    """The texts of a request: as `read_prompts` has it, of the field `input`."""
    try:
        return read_prompts(given)
    except RequestError as error:
        renamed_error = renamed(error, {"prompt": "input"})
        message = renamed_error.message.replace("prompt", "input", 1)
        raise RequestError(message, renamed_error.param, renamed_error.remedy) from None


def encoded(vector: Vector, encoding: Encoding | None) -> list[float] | str:
    """A vector as a list, or as the base64 of its little-endian float32 values."""
    if encoding == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode("ascii")
    values: list[float] = vector.tolist()
    return values


def _head(request: Request, kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"{kind}-{request.scope['request_id']}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
    }
