"""From a request's fields to `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.errors import RequestError
from anychip.sampling_params import MAX_CHOICES, SamplingParams
from anychip_api.schemas import ChatRequest, CompletionRequest, GenerationRequest
from anychip_api.structured import read_structure

_SHARED = tuple(name for name in SamplingParams.__struct_fields__ if name in GenerationRequest.model_fields)
_DEFAULTED = frozenset({"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens"})
_COMPLETION_MAX_TOKENS = 16


def completion_params(request: CompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Sampling of a completion; echoing with logprobs scores the prompt as well."""
    values = _shared_values(request, {"max_tokens": _COMPLETION_MAX_TOKENS, **defaults})
    values["logprobs"] = request.logprobs
    scores_prompt = request.echo and request.logprobs is not None
    if scores_prompt and request.prompt_logprobs is None:
        values["prompt_logprobs"] = request.logprobs
    if request.best_of is not None:
        values |= _best_of(request, request.best_of)
    if request.max_tokens == 0 and not (request.echo or request.prompt_logprobs is not None):
        raise RequestError(
            "max_tokens is 0, which asks for nothing.",
            "max_tokens",
            "Ask for at least 1 token, or set `echo` to get the prompt back.",
        )
    return SamplingParams(**values)


def _best_of(request: CompletionRequest, candidates: int) -> dict[str, Any]:
    """All candidates are generated as choices; where some are left out, log-probabilities say which."""
    choices = request.n or 1
    if candidates < choices:
        raise RequestError(f"best_of ({candidates}) is less than n ({choices}).", "best_of", "Raise it, or lower n.")
    if candidates > choices and request.stream:
        raise RequestError("best_of is not known before the end.", "best_of", "Set `stream` to false.")
    if candidates > MAX_CHOICES:
        raise RequestError(f"best_of must be at most {MAX_CHOICES}, got {candidates}.", "best_of", "Lower it.")
    return {"n": candidates, "logprobs": request.logprobs or 0} if candidates > choices else {}


def chat_params(request: ChatRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Sampling of a chat; without a limit it may go on to the end of the model's context."""
    values = _shared_values(request, {"max_tokens": None, **defaults})
    if request.top_logprobs is not None and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs.", "top_logprobs", "Set `logprobs` to true as well.")
    values["logprobs"] = (request.top_logprobs or 0) if request.logprobs else None
    limit = request.max_completion_tokens
    if limit is not None:
        if request.max_tokens not in (None, limit):
            raise RequestError("max_tokens and max_completion_tokens differ.", "max_tokens", "Send one of them.")
        values["max_tokens"] = limit
    if values["max_tokens"] == 0 and request.prompt_logprobs is None:
        raise RequestError("max_tokens is 0, which asks for nothing.", "max_tokens", "Ask for at least 1 token.")
    return SamplingParams(**values)


def renamed(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """The error with `param` as the client wrote it."""
    if error.param is None or error.param not in names:
        return error
    return RequestError(error.message, names[error.param], error.remedy)


def _shared_values(request: GenerationRequest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: defaults[name] for name in _DEFAULTED if name in defaults}
    for name in _SHARED:
        value = getattr(request, name)
        if value is not None:
            values[name] = value
    values["structured_outputs"] = read_structure(request)
    return values


def check_streaming(request: GenerationRequest) -> None:
    """Refuse what a stream cannot carry, and stream options without a stream."""
    if request.stream_options is not None and not request.stream:
        raise RequestError("stream_options needs a stream.", "stream_options", "Set `stream` to true as well.")
    if request.stream and request.prompt_logprobs is not None:
        raise RequestError("prompt_logprobs are not part of a stream.", "prompt_logprobs", "Set `stream` to false.")
