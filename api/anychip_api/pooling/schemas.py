"""What the routes of pooling models take: the fields of OpenAI, Jina, Cohere and vLLM."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from anychip_api.schemas import NamedModel

Encoding = Literal["float", "base64"]
Texts = str | list[str]
Document = str | dict[str, Any]


class PoolingRequest(NamedModel):
    """The fields that all of them share."""

    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    request_timeout: Annotated[float, Field(gt=0, le=1e6)] | None = None


class ActivatedRequest(PoolingRequest):
    """Labels or scores: as probabilities, or as the model gives them."""

    use_activation: bool | None = None


class VectorRequest(ActivatedRequest):
    """POST /pooling. `input` is text, token ids, or a list of either."""

    input: Any = None
    encoding_format: Encoding | None = None
    dimensions: int | None = None
    prompt_name: str | None = None


class EmbeddingRequest(VectorRequest):
    """POST /v1/embeddings. `normalize` is another name of `use_activation`."""

    normalize: bool | None = None


class ClassificationRequest(ActivatedRequest):
    """POST /classify. `input` is text, token ids, or a list of either."""

    input: Any = None


class ScoreRequest(ActivatedRequest):
    """POST /v1/score: one text with each of several, or two lists; under any of the three pairs of names."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None


class RerankRequest(ActivatedRequest):
    """POST /v1/rerank, /v2/rerank and /rerank."""

    query: str
    documents: list[Document]
    top_n: int | None = None
    return_documents: bool | None = None
