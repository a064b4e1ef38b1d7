"""What the routes take: OpenAI's fields and vLLM's. Types are strict, ranges are the engine's to check.

A field that is null counts as absent. Fields that are not listed here end in `model_extra`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from anychip.sampling_params import MAX_LOGPROBS
from anychip_api.fields import REFUSED, Refusals

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""What a client wants to find again with an object that is kept: OpenAI's limits."""


class Schema(BaseModel):
    """A request body, or a part of one."""

    model_config = ConfigDict(extra="allow", strict=True)

    refused: ClassVar[Refusals] = REFUSED
    """Fields that are not built and would change the answer."""

    def without_effect(self) -> list[str]:
        """What the request asks for in fields that are known, and does not get, with no change to the answer."""
        parts = [(outer, part) for outer, part in self if isinstance(part, Schema)]
        return [f"{outer}.{name}" for outer, part in parts for name in part.model_extra or {}]


class NamedModel(Schema):
    """A request to a model, which may be named."""

    model: str | None = None


class StreamOptions(Schema):
    """How a stream reports usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingRequest(NamedModel):
    """How to sample, and how to treat the request: the fields that every generating route takes."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    logit_bias: dict[int, float] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | bool | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    request_timeout: Annotated[float, Field(gt=0, le=1e6)] | None = None


class GenerationRequest(SamplingRequest):
    """The fields that chats and completions share."""

    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. `prompt` is text, token ids, or a list of either."""

    prompt: Any = None
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions. What a message may hold is the chat template's to say."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class TokensRequest(NamedModel):
    """POST /inference/v1/generate. `sampling_params` has the fields of a completion."""

    token_ids: list[int]
    sampling_params: dict[str, Any]
    request_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None

    OUTER: ClassVar[tuple[str, ...]] = ("stream", "stream_options", "priority", "cache_salt")
    """Fields of a completion that stand beside `sampling_params`."""
    TEXT: ClassVar[tuple[str, ...]] = ("prompt", "echo", "suffix", "model")
    """Fields of a completion that have no place here."""

    def sampling(self) -> dict[str, Any]:
        """The fields of `sampling_params` that a completion may have, known or not."""
        return {name: one for name, one in self.sampling_params.items() if name not in (*self.OUTER, *self.TEXT)}

    def without_effect(self) -> list[str]:
        """Unknown sampling parameters too."""
        known = self.sampling().keys() & (CompletionRequest.model_fields.keys() | self.refused.keys())
        return super().without_effect() + [f"sampling_params.{one}" for one in self.sampling_params if one not in known]


class TokenizeRequest(NamedModel):
    """POST /tokenize, of a `prompt` or of `messages`."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    tools: list[dict[str, Any]] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(NamedModel):
    """POST /detokenize."""

    tokens: list[int]
    skip_special_tokens: bool | None = None
