"""Cases A: token ids and parameter ranges. Each is refused before the engine sees it."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.api.running import RunningServer, joined

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
VOCABULARY = 49152
HUGE = 5279552648203111001


def body(path: str, **fields: Any) -> dict[str, Any]:
    start = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hi"}]}
    return {**start, "max_tokens": 4, **fields}


@pytest.mark.parametrize("token", [VOCABULARY, VOCABULARY + 1, -1, HUGE, 2**31, -(2**40)])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a1_logit_bias_outside_of_the_vocabulary(server: RunningServer, path: str, token: int) -> None:
    error = server.refused(path, body(path, logit_bias={str(token): 1}))
    assert error["param"] == "logit_bias"
    assert str(token) in error["message"]
    assert str(VOCABULARY - 1) in error["message"]


def test_a1_the_last_id_of_the_vocabulary_may_be_biased(server: RunningServer) -> None:
    answer = server.complete("Hi", logit_bias={str(VOCABULARY - 1): 100}, max_tokens=2, return_token_ids=True)
    assert answer["choices"][0]["token_ids"] == [VOCABULARY - 1] * 2


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
@pytest.mark.parametrize("token", [VOCABULARY, -1, HUGE])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a3_token_ids_outside_of_the_vocabulary(server: RunningServer, path: str, field: str, token: int) -> None:
    error = server.refused(path, body(path, min_tokens=1, **{field: [5, token]}))
    assert error["param"] == field
    assert str(token) in error["message"]


def test_a3_the_last_id_may_stop(server: RunningServer) -> None:
    bias = {str(VOCABULARY - 1): 100}
    answer = server.complete(
        "Hi", stop_token_ids=[VOCABULARY - 1], min_tokens=1, logit_bias=bias, return_token_ids=True
    )
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == VOCABULARY - 1
    assert choice["token_ids"][0] != VOCABULARY - 1


@pytest.mark.parametrize("prompt", [[VOCABULARY], [-1], [HUGE], [1, 2, HUGE], [[1], [VOCABULARY]], [[1], [-5]]])
@pytest.mark.parametrize("echo", [False, True])
def test_a5_prompt_ids_outside_of_the_vocabulary(server: RunningServer, prompt: Any, echo: bool) -> None:
    error = server.refused(COMPLETIONS, {"prompt": prompt, "echo": echo})
    assert error["param"] == "prompt"
    assert str(VOCABULARY - 1) in error["message"]


@pytest.mark.parametrize("token", [VOCABULARY, -1, HUGE])
def test_a5_detokenize(server: RunningServer, token: int) -> None:
    assert server.refused("/detokenize", {"tokens": [token]})["param"] == "tokens"


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["hi", ""], ["", "hi"], [[5], []]])
@pytest.mark.parametrize("stream", [False, True])
def test_a6_an_empty_prompt_without_a_bos(server: RunningServer, prompt: Any, stream: bool) -> None:
    before = server.metric("request_success_total", finished_reason="length")
    error = server.refused(COMPLETIONS, {"prompt": prompt, "stream": stream})
    assert error["param"] == "prompt"
    assert "empty" in error["message"]
    assert server.metric("request_success_total", finished_reason="length") == before


def test_a6_a_batch_answers_every_prompt_in_order(server: RunningServer) -> None:
    prompts = ["The capital of France is", "One, two, three,", "Red, green,"]
    alone = [server.text(prompt) for prompt in prompts]
    choices = server.complete(prompts, n=2)["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    assert [choice["text"] for choice in choices] == [alone[number // 2] for number in range(6)]
    ids = [server.tokens(prompt) for prompt in prompts]
    assert [choice["text"] for choice in server.complete(ids)["choices"]] == alone
    chunks = server.chunks(COMPLETIONS, {"prompt": prompts, "temperature": 0, "max_tokens": 8})
    assert [joined(chunks, index) for index in range(3)] == alone


def test_a6_a_batch_larger_than_the_server_takes(server: RunningServer) -> None:
    assert server.refused(COMPLETIONS, {"prompt": ["a"] * 100, "n": 100})["param"] == "prompt"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("n", [0, -1, 10_000])
@pytest.mark.parametrize("stream", [True, False])
def test_a8_no_choices(server: RunningServer, path: str, n: int, stream: bool) -> None:
    with server.http.stream("POST", path, json=body(path, n=n, stream=stream)) as answer:
        answer.read()
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["param"] == "n"


RANGES = [
    ("temperature", -1),
    ("temperature", 2.5),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("temperature", True),
    ("temperature", "0.7"),
    ("top_p", 0),
    ("top_p", 1.1),
    ("top_p", -0.5),
    ("top_p", float("nan")),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", 2**40),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("presence_penalty", 2.1),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("frequency_penalty", float("nan")),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("repetition_penalty", float("inf")),
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", 2**70),
    ("min_tokens", 5),
    ("min_tokens", -1),
    ("stop", [""]),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("bad_words", [""]),
    ("n", 129),
    ("n", True),
    ("seed", 2**64),
    ("seed", 10**400),
    ("seed", -(2**64)),
    ("seed", 1.5),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"5": -101}),
    ("logit_bias", {"5": float("nan")}),
    ("logit_bias", {"x": 1}),
    ("allowed_token_ids", []),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 1000),
    ("priority", "high"),
]


@pytest.mark.parametrize(("field", "value"), RANGES)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a9_out_of_range(server: RunningServer, path: str, field: str, value: Any) -> None:
    error = server.refused(path, body(path, **{field: value}))
    assert error["param"] == field
    assert field in error["message"]


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (COMPLETIONS, "logprobs", -2),
        (COMPLETIONS, "logprobs", 1000),
        (COMPLETIONS, "logprobs", True),
        (CHAT, "logprobs", -2),
        (CHAT, "top_logprobs", 1000),
        (CHAT, "max_completion_tokens", -5),
        (CHAT, "max_completion_tokens", 2.0),
    ],
)
def test_a9_fields_of_one_route(server: RunningServer, path: str, field: str, value: Any) -> None:
    fields = {field: value, **({"logprobs": True} if field == "top_logprobs" else {})}
    request = body(path, **fields)
    if field == "max_completion_tokens":
        del request["max_tokens"]
    assert server.refused(path, request)["param"] == field


LEGAL = [
    ("temperature", 2),
    ("top_p", 0.01),
    ("top_k", -1),
    ("top_k", 10**6),
    ("min_p", 1),
    ("presence_penalty", -2),
    ("frequency_penalty", -1.5),
    ("repetition_penalty", 0.01),
    ("seed", 2**63 - 1),
    ("seed", -1),
    ("stop", None),
    ("stop", []),
    ("n", None),
]


@pytest.mark.parametrize(("field", "value"), LEGAL)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a9_the_ends_of_the_ranges_are_legal(server: RunningServer, path: str, field: str, value: Any) -> None:
    answer = server.post(path, body(path, **{field: value}))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a11_top_k_1_is_greedy(server: RunningServer, path: str) -> None:
    if path == COMPLETIONS:
        greedy, sampled = server.text("Once upon a time"), server.text("Once upon a time", temperature=1, top_k=1)
    else:
        answers = [server.chat("Tell a tale."), server.chat("Tell a tale.", temperature=1, top_k=1)]
        greedy, sampled = (answer["choices"][0]["message"]["content"] for answer in answers)
    assert sampled == greedy


def test_a11_the_openai_client_sends_our_fields_too(client: openai.OpenAI) -> None:
    def text(**fields: Any) -> str:
        answer = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=8, **fields)
        return answer.choices[0].text

    assert text(temperature=1, extra_body={"top_k": 1}) == text(temperature=0)
