"""What a request asks of the sampler. Every field works, or is refused with its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from anychip.errors import RequestError
from anychip.grammar.params import StructuredOutputsParams, read_structured_outputs

MAX_LOGPROBS = 100
"""Most alternatives a position may report."""

MAX_CHOICES = 128
"""Most choices (`n`) of one request."""

MAX_WORDS = 10_000
"""Most strings of `stop` or `bad_words`: each is looked for, or tokenized, while others wait."""

_SEED_LIMIT = 2**63

_NULLABLE = {"seed", "max_tokens", "logprobs", "prompt_logprobs"}


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request; names and defaults are those of vLLM and OpenAI.

    Raises `RequestError` naming the field when a value is out of range.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    bad_words: tuple[str, ...] = ()
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    min_tokens: int = 0
    max_tokens: int | None = 16
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    """A schema, expression or grammar that the output has to fit."""
    skip_special_tokens: bool = True
    visible_tokens: tuple[str, ...] = ()
    """Special tokens that are part of the text even where `skip_special_tokens` leaves out the others."""
    detokenize: bool = True

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words", "visible_tokens"):
            value = getattr(self, name)
            words = (value,) if isinstance(value, str) else tuple(value or ())
            msgspec.structs.force_setattr(self, name, words)
        msgspec.structs.force_setattr(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        if self.allowed_token_ids is not None:
            msgspec.structs.force_setattr(self, "allowed_token_ids", tuple(self.allowed_token_ids))
        if self.top_k == -1:
            msgspec.structs.force_setattr(self, "top_k", 0)
        given: Any = self.structured_outputs
        if given is not None and not isinstance(given, StructuredOutputsParams):
            msgspec.structs.force_setattr(self, "structured_outputs", read_structured_outputs(given))
        for check in _CHECKS:
            check(self)

    @property
    def greedy(self) -> bool:
        """Whether the highest logit always wins."""
        return self.temperature == 0.0

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


def _number(name: str, low: float, high: float, integer: bool = False, open_low: bool = False) -> Callable[[Any], None]:
    def check(params: Any) -> None:
        value = getattr(params, name)
        if value is None and name in _NULLABLE:
            return
        kinds = (int,) if integer else (int, float)
        finite = not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, bool) or not isinstance(value, kinds) or not finite:
            raise RequestError(f"{name} must be {'an integer' if integer else 'a finite number'}, got {value!r}.", name)
        if not low <= value <= high or (open_low and value == low):
            raise RequestError(f"{name} must be {_range(low, high, open_low)}, got {_shown(value)}.", name)

    return check


def _range(low: float, high: float, open_low: bool) -> str:
    return f"above {low} and at most {high}" if open_low else f"between {low} and {high}"


def _shown(value: float) -> str:
    return str(value) if abs(value) < 1e40 else "a number of more than 40 digits"


def _words(name: str) -> Callable[[Any], None]:
    def check(params: Any) -> None:
        words: Sequence[Any] = getattr(params, name)
        if any(not isinstance(word, str) or not word for word in words):
            raise RequestError(f"{name} must hold non-empty strings.", name)
        if len(words) > MAX_WORDS:
            raise RequestError(f"{name} holds {len(words)} strings; {MAX_WORDS} are the most.", name)

    return check


def _token_ids(name: str) -> Callable[[Any], None]:
    def check(params: Any) -> None:
        for token in getattr(params, name) or ():
            if isinstance(token, bool) or not isinstance(token, int):
                raise RequestError(f"{name} must hold integer token ids, got {token!r}.", name)

    return check


def _min_below_max(params: Any) -> None:
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise RequestError(
            f"min_tokens ({params.min_tokens}) must not exceed max_tokens ({params.max_tokens}).", "min_tokens"
        )


def _bias_values(params: Any) -> None:
    for token, bias in (params.logit_bias or {}).items():
        if isinstance(token, bool) or not isinstance(token, int):
            raise RequestError(f"logit_bias keys must be token ids, got {token!r}.", "logit_bias")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise RequestError(f"logit_bias values must be between -100 and 100, got {bias!r}.", "logit_bias")


def _some_allowed(params: Any) -> None:
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        raise RequestError("allowed_token_ids must name at least one token.", "allowed_token_ids")


_CHECKS: tuple[Callable[[Any], None], ...] = (
    _number("n", 1, MAX_CHOICES, integer=True),
    _number("temperature", 0, 2),
    _number("top_p", 0, 1, open_low=True),
    _number("top_k", 0, 2**31 - 1, integer=True),
    _number("min_p", 0, 1),
    _number("presence_penalty", -2, 2),
    _number("frequency_penalty", -2, 2),
    _number("repetition_penalty", 0.001, 1000),  # beyond, logits may be no finite numbers
    _number("seed", -_SEED_LIMIT, _SEED_LIMIT - 1, integer=True),
    _number("min_tokens", 0, 2**31 - 1, integer=True),
    _number("max_tokens", 0, 2**31 - 1, integer=True),
    _number("logprobs", 0, MAX_LOGPROBS, integer=True),
    _number("prompt_logprobs", 0, MAX_LOGPROBS, integer=True),
    _words("stop"),
    _words("bad_words"),
    _words("visible_tokens"),
    _token_ids("stop_token_ids"),
    _token_ids("allowed_token_ids"),
    _min_below_max,
    _bias_values,
    _some_allowed,
)
