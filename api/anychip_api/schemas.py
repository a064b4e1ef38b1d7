"""What the routes take: OpenAI's fields and vLLM's. Types are strict, ranges are the engine's to check.

A field that is null counts as absent. Fields that are not listed here end in `model_extra`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from anychip.sampling_params import MAX_LOGPROBS

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""What a client wants to find again with an object that is kept: OpenAI's limits."""


class Schema(BaseModel):
    """A request body, or a part of one."""

    model_config = ConfigDict(extra="allow", strict=True)


class NamedModel(Schema):
    """A request to a model, which may be named."""

    model: str | None = None


class StreamOptions(Schema):
    """How a stream reports usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(NamedModel):
    """The fields that both generating routes share."""

    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
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
    prompt_logprobs: int | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    request_timeout: Annotated[float, Field(gt=0, le=1e6)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. `prompt` is text, token ids, or a list of either."""

    prompt: Any = None
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
