"""/v1/messages, with Anthropic's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.api.running import RunningServer
from tests.api.test_case_i_disconnect import send, wait_for

MESSAGES = "/v1/messages"
QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
LONG = {"messages": QUESTION, "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture
def claude(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0) as client:
        yield client


def greedy(client: anthropic.Anthropic, **fields: Any) -> Any:
    extra = {"temperature": 0, **fields.pop("extra_body", {})}
    return client.messages.create(
        **{"model": "demo", "max_tokens": 20, "messages": QUESTION, "system": "Be short.", **fields}, extra_body=extra
    )


def text(message: Any) -> str:
    return "".join(block.text for block in message.content)


def test_it_answers(claude: anthropic.Anthropic, server: RunningServer) -> None:
    message = greedy(claude)
    assert "Paris" in text(message)
    assert (message.type, message.role, message.stop_reason, message.stop_sequence) == (
        "message",
        "assistant",
        "end_turn",
        None,
    )
    messages = [{"role": "system", "content": "Be short."}, *QUESTION]
    chat = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0}).json()
    assert text(message) == chat["choices"][0]["message"]["content"]
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
    assert usage.output_tokens == chat["usage"]["completion_tokens"]
    blocks = [{"type": "text", "text": "Be"}, {"type": "text", "text": "short."}]
    assert greedy(claude, system=blocks).stop_reason == "end_turn"


def test_the_events_of_a_stream(claude: anthropic.Anthropic) -> None:
    events = list(greedy(claude, stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert deltas >= 1, "what comes while a client is busy comes together"
    whole = greedy(claude)
    with claude.messages.stream(
        model="demo", max_tokens=20, messages=QUESTION, system="Be short.", extra_body={"temperature": 0}
    ) as stream:
        final = stream.get_final_message()
    assert (
        text(final)
        == text(whole)
        == "".join(event.delta.text for event in events if event.type == "content_block_delta")
    )
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0)
    assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_how_it_stops(claude: anthropic.Anthropic) -> None:
    whole = greedy(claude)
    assert greedy(claude, max_tokens=2).stop_reason == "max_tokens"
    stopped = greedy(claude, stop_sequences=["Paris"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")
    assert text(stopped) == text(whole).partition("Paris")[0]


def test_it_goes_on_with_the_assistants_words(claude: anthropic.Anthropic) -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    assert text(greedy(claude, messages=begun)).strip().startswith("Paris")


def test_counting_tokens(claude: anthropic.Anthropic) -> None:
    count = claude.messages.count_tokens(model="demo", messages=QUESTION, system="Be short.")
    usage = greedy(claude, max_tokens=1).usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_models_are_listed(claude: anthropic.Anthropic) -> None:
    (model,) = claude.models.list().data
    assert (model.id, model.type, model.display_name) == ("demo", "model", "demo")
    assert claude.models.retrieve("demo").created_at.year > 2000


def test_errors_have_anthropics_shape(claude: anthropic.Anthropic, server: RunningServer) -> None:
    with pytest.raises(anthropic.NotFoundError):
        greedy(claude, model="other")
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        greedy(claude, extra_body={"temperature": 9})
    for body in ("{", "[]", "[" * 100_000, '{"messages": "\\ud800", "max_tokens": 1}'):
        answer = server.post(MESSAGES, body)
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert server.http.get(f"{MESSAGES}/nothing").json()["error"]["type"] == "not_found_error"
    assert server.http.get(MESSAGES).json()["type"] == "error"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"messages": []}, "message"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}]}, "messages"),
        ({"system": 5}, "system"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"stop_sequences": [""]}, "stop"),
        ({"tools": [{"type": "web_search_20250305"}]}, "tools"),
        ({"tools": [{"name": 5}]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config"),
    ],
)
def test_a_wrong_request(server: RunningServer, fields: dict[str, Any], name: str) -> None:
    answer = server.post(MESSAGES, {"messages": QUESTION, "max_tokens": 5, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "error"
    assert name in answer.json()["error"]["message"]


def test_what_has_no_effect_is_named(server: RunningServer) -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "me"}}
    answer = server.post(MESSAGES, {"messages": QUESTION, "max_tokens": 2, **fields})
    assert sorted(answer.headers["x-anychip-ignored"].split(", ")) == ["metadata", "thinking.budget_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_rows(server: RunningServer, stream: bool) -> None:
    with server.cut_short(), send(server, MESSAGES, {**LONG, "stream": stream}):
        wait_for(server, "num_requests_running", 1)
