"""The sampling flags of `run` and `chat`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from anychip.cli.fields import Field, fields
from anychip.sampling_params import SamplingParams


class SamplingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may say about an answer; the rest keeps the model's or the engine's defaults."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Most tokens of an answer; by default 1024, or what the context has left."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    """Randomness; 0 always takes the likeliest token. By default the model's own, else 0 in `run` and 0.7 in `chat`."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Sample among the likeliest tokens that hold this part of the probability."""
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Sample among this many of the likeliest tokens; 0 takes all."""
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Leave out tokens less likely than this part of the likeliest one's probability."""
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.001, le=1000)] | None = None
    """Make tokens that occurred before less likely; 1 changes nothing."""
    stop: tuple[str, ...] = ()
    """A text that ends the answer."""


MAX_TOKENS = 1024


def sampling_fields() -> list[Field]:
    """Every option about an answer."""
    return fields(SamplingOptions)


def sampling_params(given: dict[str, Any], model: dict[str, Any], temperature: float, room: int) -> SamplingParams:
    """Parameters out of the flags, the model's own defaults, and what the context has left (`room` tokens)."""
    return SamplingParams(**{"temperature": temperature, "max_tokens": max(1, min(MAX_TOKENS, room)), **model, **given})
