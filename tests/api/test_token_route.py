"""/inference/v1/generate, and the small routes around generating."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.running import RunningServer
from tests.api.test_case_i_disconnect import send, wait_for

GENERATE = "/inference/v1/generate"
GREEDY = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


def ask(server: RunningServer, **fields: Any) -> dict[str, Any]:
    body = {"token_ids": server.tokens("Once upon a time"), "sampling_params": GREEDY, **fields}
    answer = server.post(GENERATE, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_ids_in_and_ids_out(server: RunningServer) -> None:
    answer = ask(server, request_id="mine")
    (choice,) = answer["choices"]
    assert answer["request_id"] == "mine"
    assert choice["finish_reason"] == "length"
    completed = server.complete(server.tokens("Once upon a time"), return_token_ids=True, **GREEDY)
    assert choice["token_ids"] == completed["choices"][0]["token_ids"]
    assert "text" not in choice


def test_its_stream(server: RunningServer) -> None:
    fields = {"token_ids": server.tokens("Once upon a time"), "sampling_params": {**GREEDY, "n": 2}}
    chunks = server.chunks(GENERATE, {**fields, "stream_options": {"include_usage": True}})
    assert chunks.pop()["usage"]["completion_tokens"] == 12
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    whole = ask(server)["choices"][0]["token_ids"]
    for index in range(2):
        mine = [choice for choice in choices if choice["index"] == index]
        assert [token for choice in mine for token in choice["token_ids"]] == whole
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["length"]


def test_its_logprobs_and_stops(server: RunningServer) -> None:
    answer = ask(server, sampling_params={**GREEDY, "logprobs": 2, "prompt_logprobs": 0})
    (choice,) = answer["choices"]
    rows = choice["logprobs"]["content"]
    assert [row["token"] for row in rows] == [f"token_id:{token}" for token in choice["token_ids"]]
    assert all(len(row["top_logprobs"]) == 2 for row in rows)
    assert answer["prompt_logprobs"][0] is None
    text = server.decode(choice["token_ids"])
    stopped = ask(server, sampling_params={**GREEDY, "stop": [text[3:6]]})["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert len(stopped["token_ids"]) < 6


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids": None},
        {"token_ids": []},
        {"token_ids": [-1]},
        {"token_ids": [10**9]},
        {"token_ids": [5279552648203111001]},
        {"token_ids": ["a"]},
        {"token_ids": "text"},
        {"sampling_params": None},
        {"sampling_params": 5},
        {"sampling_params": {"temperature": "hot"}},
        {"sampling_params": {"n": 10**20}},
        {"sampling_params": {"use_beam_search": True}},
        {"stream_options": {}},
        {"request_id": ""},
    ],
)
def test_a_wrong_request(server: RunningServer, fields: dict[str, Any]) -> None:
    server.refused(GENERATE, {"token_ids": [5], "sampling_params": {"max_tokens": 1}, **fields})


def test_what_has_no_effect_is_named(server: RunningServer) -> None:
    params = {"max_tokens": 1, "detokenize": True, "prompt": "x"}
    answer = server.post(GENERATE, {"token_ids": [5], "sampling_params": params})
    assert answer.headers["x-anychip-ignored"] == "sampling_params.detokenize, sampling_params.prompt"


def test_load_counts_requests(server: RunningServer) -> None:
    assert server.http.get("/load").json() == {"server_load": 0}
    body = {"token_ids": [5], "sampling_params": {"max_tokens": 1500, "ignore_eos": True}, "stream": True}
    with server.cut_short(), send(server, GENERATE, body):
        wait_for(server, "num_requests_running", 1)
        assert server.http.get("/load").json() == {"server_load": 1}


def test_ping(server: RunningServer) -> None:
    assert server.http.get("/ping").status_code == server.http.post("/ping").status_code == 200


def test_the_tokenizer_is_described(server: RunningServer) -> None:
    described = server.http.get("/tokenizer_info").json()
    assert len(server.tokens(described["eos_token"])) == 1
    assert "messages" in described["chat_template"]
