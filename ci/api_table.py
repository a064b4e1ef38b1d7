"""The tables of docs/api.md: which field of which route works, from the schemas of the server.

`python ci/api_table.py` writes them, `--check` only compares. The fields of OpenAI's and Anthropic's routes that the
schemas do not have come from those clients' own types, so that none can be forgotten.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.batch_create_params import BatchCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase

import embed
from anychip_api.anthropic.schema import CountTokensRequest, MessagesRequest
from anychip_api.batch.schema import BatchRequest
from anychip_api.fields import NO_EFFECT, REFUSED
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

DOCUMENT = "docs/api.md"
YES, REFUSAL, IGNORED, UNKNOWN = "yes", "400", "no effect", ""


@dataclass(frozen=True)
class Route:
    """A route, what it takes, and the client's type of its fields; `vllm` says that vLLM's are accounted for too."""

    name: str
    schema: type[Schema]
    client: type | None = None
    vllm: bool = False

    def published(self) -> set[str]:
        """The fields that the route's own client can send."""
        return set(typing.get_type_hints(self.client)) if self.client else set()


GENERATING = (
    Route("chat", ChatRequest, ChatParams, vllm=True),
    Route("completions", CompletionRequest, CompletionParams, vllm=True),
    Route("responses", ResponsesRequest, ResponseCreateParamsBase),
    Route("messages", MessagesRequest, MessageCreateParamsBase),
    Route("count_tokens", CountTokensRequest, MessageCountTokensParams),
)
OTHERS = (
    Route("embeddings", EmbeddingRequest, EmbeddingCreateParams),
    Route("score", ScoreRequest),
    Route("rerank", RerankRequest),
    Route("classify", ClassificationRequest),
    Route("pooling", VectorRequest),
    Route("tokenize", TokenizeRequest),
    Route("detokenize", DetokenizeRequest),
    Route("generate", TokensRequest),
    Route("batches", BatchRequest, BatchCreateParams),
)


def tables() -> Mapping[str, str]:
    """Each table by the name of its markers."""
    return {"generating-fields": table(GENERATING), "other-fields": table(OTHERS)}


def table(routes: Sequence[Route]) -> str:
    """A row a field, a column a route."""
    names = sorted({name for route in routes for name in fields(route)})
    head = ["field", *(f"`{route.name}`" for route in routes)]
    rows = [[f"`{name}`", *(supported(route, name) for route in routes)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def fields(route: Route) -> Iterator[str]:
    """Every field that a client may send to a route and that something is known of."""
    yield from route.schema.model_fields
    yield from route.published()
    if route.vllm:
        yield from REFUSED
        yield from NO_EFFECT - {name for other in (*GENERATING, *OTHERS) for name in other.published()}


def supported(route: Route, name: str) -> str:
    """What becomes of a field."""
    if name in route.schema.model_fields:
        return YES
    if name not in set(fields(route)):
        return UNKNOWN
    if name in route.schema.refused:
        return REFUSAL
    assert name in NO_EFFECT, f"{route.name}: nothing is known of the client's field {name}"
    return IGNORED


def main() -> int:
    """Write or compare every table."""
    return max(embed.run(name, {DOCUMENT: content}) for name, content in tables().items())


if __name__ == "__main__":
    sys.exit(main())
