"""Tools and output formats by the Responses API and by Anthropic's, with their own clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pydantic
import pytest
from tests.api.running import RunningServer
from tests.api.test_case_h_tools import PARAMETERS, PERSON

QUESTION = "What is the weather in Paris?"
FUNCTION: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
ASKED: Any = {"model": "demo", "input": QUESTION, "temperature": 0, "tools": [FUNCTION], "parallel_tool_calls": False}
TOOL: Any = {"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}


class Person(pydantic.BaseModel):
    """What the model has to describe."""

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(le=150)


@pytest.fixture
def claude(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0) as client:
        yield client


def message(client: anthropic.Anthropic, messages: Any = QUESTION, **fields: Any) -> Any:
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return client.messages.create(
        model="demo", max_tokens=120, messages=given, tools=[TOOL], extra_body={"temperature": 0}, **fields
    )


def check(arguments: dict[str, Any]) -> None:
    assert arguments["city"] in ("Paris", "London")
    assert arguments["days"] in range(1, 10)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}], ids=["required", "named"])
def test_a_response_calls_a_function(client: openai.OpenAI, choice: Any) -> None:
    response = client.responses.create(**ASKED, tool_choice=choice)
    (call,) = response.output
    assert call.type == "function_call"
    assert (call.name, response.status, response.output_text) == ("weather", "completed", "")
    check(json.loads(call.arguments))
    events = list(client.responses.create(**ASKED, tool_choice=choice, stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.function_call_arguments.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        *["response.function_call_arguments.delta"] * deltas,
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert deltas >= 1
    assert "".join(pieces) == call.arguments
    given = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"}
    after = client.responses.create(model="demo", input=[given], previous_response_id=response.id, max_output_tokens=8)
    assert after.output


def test_a_response_in_a_form(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(model="demo", input="Describe a person.", text_format=Person, max_output_tokens=60)
    assert parsed.output_parsed is not None
    assert parsed.output_parsed.age <= 150


def test_a_message_uses_a_tool(claude: anthropic.Anthropic) -> None:
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
        whole = message(claude, tool_choice=choice)
        (block,) = whole.content
        assert (block.type, block.name, whole.stop_reason) == ("tool_use", "weather", "tool_use")
        check(block.input)
    events = list(message(claude, tool_choice=choice, stream=True))
    deltas = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert json.loads("".join(deltas)) == block.input
    assert [event.type for event in events if event.type != "content_block_delta"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    conversation = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [part.model_dump() for part in whole.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "12 degrees"}]},
    ]
    assert message(claude, conversation, tool_choice={"type": "none"}).content[0].type == "text"
    asked: Any = {"model": "demo", "messages": conversation}
    counts = [claude.messages.count_tokens(**asked, **more).input_tokens for more in ({}, {"tools": [TOOL]})]
    assert 20 < counts[0] <= counts[1]


def test_a_message_in_a_form(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "Describe a person."}], "max_tokens": 60}
    form = {"format": {"type": "json_schema", "schema": PERSON}}
    answer = server.post("/v1/messages", {**body, "output_config": form}).json()
    assert json.loads(answer["content"][0]["text"]).keys() == {"name", "age"}
    wrong = {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}
    assert server.post("/v1/messages", {**body, "output_config": wrong}).status_code == 400


def test_ids_in_a_form(server: RunningServer) -> None:
    params = {"guided_choice": ["yes", "no"], "temperature": 0, "max_tokens": 8}
    (choice,) = server.post(
        "/inference/v1/generate", {"token_ids": server.tokens("Is it?"), "sampling_params": params}
    ).json()["choices"]
    assert server.decode(choice["token_ids"]) in ("yes", "no")
