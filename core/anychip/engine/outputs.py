"""What a caller gets back; names are those vLLM users know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from anychip.engine.messages import FinishReason


@dataclass(slots=True)
class Logprob:
    """Log-probability of one token at one position; `rank` counts from 1."""

    logprob: float
    rank: int
    decoded_token: str | None = None


TokenLogprobs = dict[int, Logprob]
"""By token id: the token itself first, then the alternatives from the best on."""


@dataclass(slots=True)
class Delta:
    """What one choice gained since the last delta. `text` is complete characters only."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop string or stop token that ended it."""
    error: str = ""
    refused: bool = False
    """Whether the request itself is at fault for the error."""
    vector: npt.NDArray[np.float32] | None = None
    """[W] the pooled vector, of a request for one."""


@dataclass(slots=True)
class CompletionOutput:
    """One choice so far."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class RequestOutput:
    """One request so far."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    """One a prompt token, None for the first."""
    finished: bool = False
    num_cached_tokens: int = 0


@dataclass(slots=True)
class PoolingOutput:
    """What the model made of a prompt, as it is: `data` [W]."""

    data: npt.NDArray[np.float32]


@dataclass(slots=True)
class EmbeddingOutput:
    """The embedding of a text."""

    embedding: list[float]


@dataclass(slots=True)
class ClassificationOutput:
    """A probability a label, in the order of config.json."""

    probs: list[float]


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts go together; higher is better."""

    score: float


Pooled = TypeVar("Pooled", PoolingOutput, EmbeddingOutput, ClassificationOutput, ScoringOutput)


@dataclass(slots=True)
class PooledRequestOutput(Generic[Pooled]):
    """One request that asked for a vector."""

    request_id: str
    outputs: Pooled
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True
