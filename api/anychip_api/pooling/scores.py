"""POST /v1/score and /v1/rerank: how well texts go together, by a cross-encoder or by two embeddings."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.pooling import Pair, as_pairs
from anychip.errors import RequestError
from anychip.pooling_params import PoolingParams
from anychip_api.body import read_schema
from anychip_api.pooling.run import Work, respond, run
from anychip_api.pooling.schemas import ActivatedRequest, Document, RerankRequest, ScoreRequest, Texts
from anychip_api.service import Service

_NAMES = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"))


async def create_scores(service: Service, request: Request) -> Response:
    """A score for each pair of texts, in vLLM's shape."""
    body, headers = await read_schema(service, request, ScoreRequest)
    model = service.model_name(body.model)
    first, second, param = _texts(body)
    scores, usage = await _score(service, request, body, as_pairs(first, second), param)
    answer = {
        "id": f"score-{request.scope['request_id']}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)],
        "usage": usage,
    }
    return respond(answer, headers)


async def rerank(service: Service, request: Request) -> Response:
    """Documents by how well they answer a query, best first, in the shape of Jina and Cohere."""
    body, headers = await read_schema(service, request, RerankRequest)
    model = service.model_name(body.model)
    documents = [_text(document) for document in body.documents]
    if not documents:
        raise RequestError("documents is an empty list.", "documents", "Send at least one document.")
    if body.top_n is not None and body.top_n < 0:
        raise RequestError(f"top_n must be at least 0, got {body.top_n}.", "top_n", "0 returns all documents.")
    scores, usage = await _score(service, request, body, as_pairs(body.query, documents), "documents")
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n or None]
    results: list[dict[str, Any]] = []
    for index in order:
        document = {} if body.return_documents is False else {"document": {"text": documents[index]}}
        results.append({"index": index, **document, "relevance_score": scores[index]})
    answer = {"id": f"rerank-{request.scope['request_id']}", "model": model, "usage": usage, "results": results}
    return respond(answer, headers)


async def _score(
    service: Service, request: Request, body: ActivatedRequest, pairs: list[Pair], param: str
) -> tuple[list[float], dict[str, Any]]:
    params = PoolingParams(truncate_prompt_tokens=body.truncate_prompt_tokens, use_activation=body.use_activation)
    vectors = service.engine.vectors
    if vectors.scores_pairs:
        found = await run(service, request, body, Work(pairs, params, "score", param))
        return [float(vectors.activated(vector, params)[0]) for vector in found.raw], found.usage
    texts = list(dict.fromkeys(str(text) for pair in pairs for text in (pair.first, pair.second)))
    found = await run(service, request, body, Work(texts, params, "score", param))
    by_text = dict(zip(texts, found.raw, strict=True))
    scores = [vectors.similarity(by_text[str(pair.first)], by_text[str(pair.second)]) for pair in pairs]
    return scores, found.usage


def _texts(body: ScoreRequest) -> tuple[Texts, Texts, str]:
    """The two sides, and the name of the second."""
    given = [(getattr(body, first), getattr(body, second), second) for first, second in _NAMES]
    complete = [pair for pair in given if pair[0] is not None and pair[1] is not None]
    count = sum(side is not None for pair in given for side in pair[:2])
    if len(complete) != 1 or count != len(_NAMES[0]):
        raise RequestError("text_1 and text_2 are required, and no other texts.", "text_1", "Send both of them.")
    return complete[0]


def _text(document: Document) -> str:
    text = document if isinstance(document, str) else document.get("text")
    if not isinstance(text, str):
        raise RequestError(
            "A document is neither text nor an object with a text.", "documents", 'Send for example {"text": "..."}.'
        )
    return text
