"""Cases B: more tokens than the model's context holds."""

from __future__ import annotations

import pytest
from tests.api.running import ENGINE, RunningServer

LENGTH = int(ENGINE["max_model_len"])
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True])
def test_b1_prompt_and_max_tokens_together(server: RunningServer, stream: bool) -> None:
    request = {"prompt": [5] * 8, "max_tokens": LENGTH - 3, "stream": stream}
    error = server.refused(COMPLETIONS, request)
    assert error["param"] == "max_tokens"
    for number in (LENGTH, 8, LENGTH - 3):
        assert str(number) in error["message"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_b1_chat(server: RunningServer, field: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    error = server.refused(CHAT, {"messages": messages, field: LENGTH})
    assert error["param"] == field
    assert str(LENGTH) in error["message"]


def test_b1_exactly_the_length_fits(server: RunningServer) -> None:
    answer = server.complete([5] * (LENGTH - 2), max_tokens=2, ignore_eos=True)
    assert answer["usage"]["total_tokens"] == LENGTH
    assert answer["choices"][0]["finish_reason"] == "length"
    server.refused(COMPLETIONS, {"prompt": [5] * (LENGTH - 2), "max_tokens": 3})


@pytest.mark.parametrize("extra", [0, 1, 5000])
def test_b2_the_prompt_alone_is_too_long(server: RunningServer, extra: int) -> None:
    error = server.refused(COMPLETIONS, {"prompt": [5] * (LENGTH + extra)})
    assert error["param"] == "prompt"
    assert str(LENGTH) in error["message"]
    assert str(LENGTH + extra) in error["message"]
    assert "-" not in error["message"].replace("--max-model-len", "")


def test_b2_chat_without_max_tokens(server: RunningServer) -> None:
    error = server.refused(CHAT, {"messages": [{"role": "user", "content": "word " * LENGTH}]})
    assert error["param"] == "messages"
    assert str(LENGTH) in error["message"]


def test_b2_one_long_prompt_refuses_the_batch(server: RunningServer) -> None:
    server.refused(COMPLETIONS, {"prompt": [[5], [5] * LENGTH]})


def test_without_max_tokens_a_completion_has_16(server: RunningServer) -> None:
    answer = server.post(COMPLETIONS, {"prompt": "Once upon a time", "ignore_eos": True}).json()
    assert answer["usage"]["completion_tokens"] == 16
