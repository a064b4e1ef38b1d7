"""Types are strict, null counts as absent, and the message names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from anychip.errors import RequestError
from anychip_api.completions import read_prompts
from anychip_api.errors import as_api_error, invalid_fields
from anychip_api.sampling import chat_params, check_streaming, completion_params
from anychip_api.schemas import ChatRequest, CompletionRequest, GenerationRequest


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate_json(json.dumps({"prompt": "x", **fields}))


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate_json(json.dumps({"messages": [], **fields}))


def rejection(text: str) -> RequestError:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate_json(text)
    return invalid_fields(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "0.5"),
        ("temperature", True),
        ("temperature", [1]),
        ("top_k", 1.5),
        ("top_k", True),
        ("max_tokens", "5"),
        ("max_tokens", False),
        ("n", 1.0),
        ("seed", "1"),
        ("stop", 5),
        ("stop", [5]),
        ("stop", {"a": 1}),
        ("stream", 1),
        ("stream", "true"),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": "2"}),
        ("logit_bias", {"1": True}),
        ("logit_bias", [[1, 2]]),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", 5),
        ("bad_words", "word"),
        ("priority", 2**40),
        ("cache_salt", ""),
        ("messages", "hi"),
        ("messages", ["hi"]),
        ("messages", None),
        ("logprobs", 2),
        ("top_logprobs", -1),
        ("top_logprobs", 1000),
        ("stream_options", True),
        ("chat_template_kwargs", []),
        ("model", 5),
    ],
)
def test_a_wrong_type_is_named(field: str, value: Any) -> None:
    error = rejection(json.dumps({"messages": [], field: value}))
    assert error.param == field
    assert field in str(error)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '{"a": 1,}', '{"model": "\\ud800"}', "[" * 100_000])
def test_what_is_no_json_object_gets_a_sentence(text: str) -> None:
    error = rejection(text)
    assert error.param is None
    assert "JSON" in str(error)


def test_a_missing_field_is_named() -> None:
    error = rejection("{}")
    assert error.param == "messages"
    assert "required" in str(error)


def test_a_long_value_is_not_repeated_in_full() -> None:
    assert len(str(rejection(json.dumps({"messages": "x" * 100_000})))) < 300


def test_null_is_absent() -> None:
    nulls = dict.fromkeys(GenerationRequest.model_fields)
    assert completion_params(completion(**nulls), {}) == completion_params(completion(), {})
    assert chat_params(chat(**nulls), {}) == chat_params(chat(), {})


def test_the_models_own_defaults_give_way_to_the_request() -> None:
    defaults = {"temperature": 0.6, "top_k": 20}
    params = chat_params(chat(temperature=0.0), defaults)
    assert (params.temperature, params.top_k) == (0.0, 20)
    assert completion_params(completion(top_k=0), defaults).top_k == 0


def test_max_tokens() -> None:
    assert completion_params(completion(), {}).max_tokens == 16
    assert chat_params(chat(), {}).max_tokens is None
    assert chat_params(chat(max_completion_tokens=7), {}).max_tokens == 7
    assert chat_params(chat(max_completion_tokens=7, max_tokens=7), {}).max_tokens == 7
    with pytest.raises(RequestError, match="differ"):
        chat_params(chat(max_completion_tokens=7, max_tokens=8), {})
    with pytest.raises(RequestError, match="max_tokens is 0"):
        completion_params(completion(max_tokens=0), {})
    assert completion_params(completion(max_tokens=0, echo=True), {}).max_tokens == 0
    with pytest.raises(RequestError, match="max_tokens is 0"):
        chat_params(chat(max_tokens=0), {})


def test_logprobs_of_both_routes() -> None:
    assert completion_params(completion(logprobs=3), {}).logprobs == 3
    assert completion_params(completion(logprobs=3), {}).prompt_logprobs is None
    assert completion_params(completion(logprobs=3, echo=True), {}).prompt_logprobs == 3
    assert chat_params(chat(logprobs=True), {}).logprobs == 0
    assert chat_params(chat(logprobs=True, top_logprobs=4), {}).logprobs == 4
    assert chat_params(chat(logprobs=False), {}).logprobs is None
    with pytest.raises(RequestError, match="top_logprobs needs logprobs"):
        chat_params(chat(top_logprobs=4), {})


def test_stream_options_need_a_stream() -> None:
    with pytest.raises(RequestError, match="stream_options"):
        check_streaming(completion(stream_options={}))
    with pytest.raises(RequestError, match="prompt_logprobs"):
        check_streaming(completion(stream=True, prompt_logprobs=1))
    check_streaming(completion(stream=True, stream_options={"include_usage": True}))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([""], [""]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([[]], [[]]),
        (["a", [1]], ["a", [1]]),
    ],
)
def test_prompts(prompt: Any, expected: Any) -> None:
    assert read_prompts(prompt) == expected


@pytest.mark.parametrize(
    "prompt", [None, [], {}, 5, True, [True], [1, "a"], [1, [2]], [[1.5]], [None], [["a"]], [[[1]]]]
)
def test_what_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(RequestError) as caught:
        read_prompts(prompt)
    assert caught.value.param == "prompt"


def test_a_bug_of_ours_is_not_shown() -> None:
    assert as_api_error(KeyError("secret")) is None
