"""Every route's shape, headers and errors, apart from the cases."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest
from tests.api.running import RunningServer

from anychip.version import __version__

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


def test_models(server: RunningServer, client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "demo"
    assert client.models.retrieve("demo").id == "demo"
    assert server.http.get("/v1/models").json()["data"][0]["max_model_len"] == 2048
    answer = server.http.get("/v1/models/other/name")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("path", "start"),
    [
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 1}),
        (CHAT, {"messages": MESSAGES, "max_tokens": 1}),
        ("/tokenize", {"prompt": "Hi"}),
        ("/detokenize", {"tokens": [5]}),
    ],
)
def test_the_model_has_to_be_served(server: RunningServer, path: str, start: dict[str, Any]) -> None:
    error = server.refused(path, {**start, "model": "gpt-4"}, status=404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "demo" in error["message"]
    for fields in ({}, {"model": "demo"}, {"model": None}):
        assert server.post(path, {**start, **fields}).status_code == 200


def test_health_and_version(server: RunningServer) -> None:
    assert server.http.get("/health").status_code == 200
    assert server.http.get("/version").json() == {"version": __version__}


def test_each_op_says_how_it_runs(server: RunningServer) -> None:
    info = server.http.get("/server_info").json()
    runs = {op["op"]: op["runs_by"] for op in info["ops"]}
    assert {"linear", "rms_norm"} <= set(runs)
    assert set(runs.values()) <= {"kernel", "decomposition", "reference"}


def test_tokenize_and_back(server: RunningServer) -> None:
    answer = server.post("/tokenize", {"prompt": "Hello, world", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 2048
    assert server.post("/detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": "Hello, world"}
    assert server.post("/tokenize", {"prompt": ""}).json()["tokens"] == []
    assert server.post("/detokenize", {"tokens": []}).json() == {"prompt": ""}


def test_tokenize_messages_as_chat_does(server: RunningServer) -> None:
    answer = server.post("/tokenize", {"messages": MESSAGES}).json()
    assert answer["count"] == server.chat("Hi", max_tokens=1)["usage"]["prompt_tokens"]
    open_ended = server.post("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}).json()
    assert open_ended["count"] < answer["count"]


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": MESSAGES}, {"prompt": 5}, {"prompt": ["a"]}])
def test_tokenize_needs_one_input(server: RunningServer, body: dict[str, Any]) -> None:
    assert server.refused("/tokenize", body)["param"] == "prompt"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/v1/completion", 404), ("GET", CHAT, 405), ("DELETE", "/health", 405)],
)
def test_wrong_routes(server: RunningServer, method: str, path: str, status: int) -> None:
    answer = server.http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"prompt": }', '{"prompt": "\\ud800"}', b'{"prompt": "\xff"}', "[" * 100_000]
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
def test_broken_bodies(server: RunningServer, path: str, text: str | bytes) -> None:
    assert "JSON" in server.refused(path, text)["message"]


def test_other_content_types(server: RunningServer) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = server.http.post(COMPLETIONS, content="{}", headers={"content-type": kind})
        assert answer.status_code == 415
        assert "application/json" in answer.json()["error"]["message"]
    kind = "application/json; charset=utf-8"
    answer = server.http.post(COMPLETIONS, content='{"prompt": "Hi"}', headers={"content-type": kind})
    assert answer.status_code == 200


def test_a_huge_body(server: RunningServer) -> None:
    answer = server.post(COMPLETIONS, b" " * (65 * 1024 * 1024))
    assert answer.status_code == 413
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(("name", "value"), [("suffix", "x"), ("truncate_prompt_tokens", 3), ("use_beam_search", True)])
def test_unbuilt_fields_of_completions(server: RunningServer, name: str, value: Any) -> None:
    assert server.refused(COMPLETIONS, {"prompt": "Hi", name: value})["param"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("chat_template", "{{ 1 }}"),
        ("audio", {"voice": "x"}),
    ],
)
def test_unbuilt_fields_of_chat(server: RunningServer, name: str, value: Any) -> None:
    assert server.refused(CHAT, {"messages": MESSAGES, name: value})["param"] == name


def test_fields_without_effect_are_named(server: RunningServer) -> None:
    fields = {"user": "me", "store": True, "metadata": {}, "teperature": 0.5, "n": 1}
    for path, start in ((COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": MESSAGES})):
        for stream in (False, True):
            answer = server.post(path, {**start, **fields, "max_tokens": 1, "stream": stream})
            assert answer.status_code == 200
            assert answer.headers["x-anychip-ignored"] == "user, store, metadata, teperature"
    assert "x-anychip-ignored" not in server.post(COMPLETIONS, {"prompt": "Hi"}).headers
    assert server.log.read_text().count("'teperature'") == 2


def test_request_ids(server: RunningServer) -> None:
    answer = server.post(COMPLETIONS, {"prompt": "Hi", "max_tokens": 1}, **{"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.json()["id"] == "cmpl-mine-1"
    answer = server.post(CHAT, {"messages": [], "n": 0}, **{"x-request-id": "mine-2"})
    assert answer.headers["x-request-id"] == "mine-2"
    made = server.http.get("/nothing").headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert server.http.get("/health", headers={"x-request-id": "x" * 500}).headers["x-request-id"] != "x" * 500


def test_two_requests_may_have_one_id(server: RunningServer) -> None:
    body = {"prompt": "Once", "max_tokens": 20}
    with server.stream(COMPLETIONS, body) as first, server.stream(COMPLETIONS, body) as second:
        assert b"[DONE]" in first.read()
        assert b"[DONE]" in second.read()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{}],
        [{"content": "x"}],
        [{"role": 5, "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "function", "name": "f", "content": "x"}],
        [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
    ],
)
def test_bad_messages(server: RunningServer, messages: Any) -> None:
    assert server.refused(CHAT, {"messages": messages})["param"] == "messages"


def test_text_parts_are_one_text(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "Hi"}]
    answer = server.post(CHAT, {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == server.chat("Hi", max_tokens=1)["usage"]["prompt_tokens"]


def test_a_refusal_goes_back_as_text(server: RunningServer) -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]}
    words = {"role": "assistant", "content": [{"type": "text", "text": "No"}]}
    answers = [
        server.post(CHAT, {"messages": [*MESSAGES, one, *MESSAGES], "max_tokens": 1}) for one in (refusal, words)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json()["usage"]["prompt_tokens"] for answer in answers}) == 1


def test_continuing_the_last_message(server: RunningServer) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "The capital of France is"}]
    fields = {"messages": messages, "continue_final_message": True, "max_tokens": 4, "temperature": 0}
    answer = server.post(CHAT, fields).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
    error = server.refused(CHAT, {**fields, "add_generation_prompt": True})
    assert error["param"] == "continue_final_message"


def test_template_variables(server: RunningServer) -> None:
    taken = {"messages": MESSAGES, "chat_template_kwargs": {"messages": []}}
    assert server.refused(CHAT, taken)["param"] == "chat_template_kwargs"
    answer = server.post(CHAT, {"messages": MESSAGES, "max_tokens": 1, "chat_template_kwargs": {"thinking": False}})
    assert answer.status_code == 200


def test_token_ids_on_request(server: RunningServer) -> None:
    choice = server.complete("Hi", return_token_ids=True, max_tokens=3, ignore_eos=True)["choices"][0]
    assert choice["prompt_token_ids"] == server.tokens("Hi")
    assert server.decode(choice["token_ids"]) == choice["text"]
    chunks = server.chunks(
        COMPLETIONS, {"prompt": "Hi", "return_token_ids": True, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    )
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == choice["token_ids"]
    logged = server.complete("Hi", logprobs=0, return_tokens_as_token_ids=True, max_tokens=1)["choices"][0]
    assert logged["logprobs"]["tokens"][0].startswith("token_id:")


def test_the_openai_client_sees_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt="Hi", temperature=9)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="Hi")


def test_the_openai_client_chats(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the capital of France?"}]
    answer = client.chat.completions.create(model="demo", messages=messages, temperature=0, max_completion_tokens=30)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_metrics(server: RunningServer) -> None:
    names = ("prompt_tokens_total", "generation_tokens_total", "time_to_first_token_seconds_count")
    before = [server.metric(name) for name in names]
    inter = server.metric("inter_token_latency_seconds_count")
    server.complete([5, 6, 7], max_tokens=4, ignore_eos=True)
    assert [server.metric(name) for name in names] == [before[0] + 3, before[1] + 4, before[2] + 1]
    assert inter <= server.metric("inter_token_latency_seconds_count") <= inter + 3  # none of those that came together
    page = server.http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "inter_token_latency_seconds_bucket",
        "time_per_output_token_seconds_bucket",
        "e2e_request_latency_seconds_sum",
        "request_queue_time_seconds_bucket",
        "request_prompt_tokens_bucket",
        "request_generation_tokens_bucket",
        "request_success_total",
        "num_preemptions_total",
        "cache_config_info",
        "compiled_programs",
        "prepared_steps",
    ):
        assert re.search(rf'^anychip:{name}{{.*model_name="demo"', page.text, re.MULTILINE), name


def test_the_description_lists_the_routes(server: RunningServer) -> None:
    description = server.http.get("/openapi.json").json()
    assert "/v1/chat/completions" in description["paths"]
    fields = description["components"]["schemas"]["ChatRequest"]["properties"]
    assert {"messages", "temperature", "top_k"} <= set(fields)
