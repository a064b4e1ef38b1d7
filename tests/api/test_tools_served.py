"""A server that finds its parsers in the chat template, on the null platform: what it writes means nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.running import RunningServer, serving
from tests.grammar.byte_model import write_byte_model

CHAT = "/v1/chat/completions"
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }} <tool_call>{% endif %}{% for message in messages %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments.city }}{% endfor %}{% endfor %}"
    "{% if thinks %}<think>{% endif %}"
)
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = write_byte_model(tmp_path_factory.mktemp("bytes") / "model")
    engine = {"model": str(folder), "device": "null", "load_format": "dummy", "chat_template": TEMPLATE}
    with serving(tmp_path_factory.mktemp("server"), {**engine, "max_model_len": 1024}) as server:
        yield server


def both(server: RunningServer, **fields: Any) -> dict[str, Any]:
    """One choice, which streamed and whole has to be the same."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, "ignore_eos": True, **fields}
    answer = server.post(CHAT, body)
    assert answer.status_code == 200, answer.text
    whole = answer.json()["choices"][0]
    streamed: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in server.chunks(CHAT, body):
        (piece,) = chunk["choices"]
        for name in ("content", "reasoning_content"):
            streamed[name] += piece["delta"].get(name) or ""
        for call in piece["delta"].get("tool_calls", []):
            if "id" in call:
                streamed["tool_calls"].append([call["function"]["name"], ""])
            streamed["tool_calls"][call["index"]][1] += call["function"]["arguments"]
        streamed["finish_reason"] = piece["finish_reason"]
    message = whole["message"]
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
    assert streamed["tool_calls"] == calls
    assert (streamed["content"], streamed["reasoning_content"]) == (
        message["content"] or "",
        message["reasoning_content"] or "",
    )
    assert streamed["finish_reason"] == whole["finish_reason"]
    return {**message, "finish_reason": whole["finish_reason"]}


def test_an_answer_without_calls(server: RunningServer) -> None:
    for fields in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
        message = both(server, **fields)
        assert message["content"]
        assert "tool_calls" not in message
        assert message["finish_reason"] == "length"


def test_a_call_that_has_to_be_made(server: RunningServer) -> None:
    message = both(server, tools=TOOLS, tool_choice="required", max_tokens=400, structured_outputs=None)
    if message["finish_reason"] == "tool_calls":
        assert json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] in ("Paris", "Rome")
    else:
        assert message["reasoning_content"], "the null model thinks without an end"


def test_a_prompt_that_begins_to_think(server: RunningServer) -> None:
    thinks = {"chat_template_kwargs": {"thinks": True}}
    message = both(server, **thinks)
    assert message["reasoning_content"]
    assert message["content"] == ""
    assert both(server, **thinks, include_reasoning=False)["reasoning_content"] is None


def test_calls_go_back_as_objects(server: RunningServer) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]
    talk.append({"role": "tool", "tool_call_id": "1", "content": "sunny"})
    tokens = server.post("/tokenize", {"messages": talk, "tools": TOOLS}).json()["tokens"]
    text = server.decode(tokens)
    assert text.startswith(json.dumps(TOOLS))
    assert text.endswith("HiRomesunny")
    call["function"]["arguments"] = "{"
    assert server.refused(CHAT, {"messages": talk})["param"] == "messages"
