"""Cases H: tools and structured output, with OpenAI's client on a real server."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from tests.api.running import RunningServer, joined

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "London"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        model="demo", messages=MESSAGES, temperature=0, max_completion_tokens=120, **fields
    )


def check_calls(calls: list[tuple[str, str]]) -> None:
    assert calls
    for name, arguments in calls:
        value = json.loads(arguments)
        if name == "weather":
            assert value.keys() == {"city", "days"}
            assert value["city"] in ("Paris", "London")
            assert value["days"] in range(1, 10)
        else:
            assert (name, value) == ("now", {})


@pytest.mark.parametrize(("choice", "reason"), [("required", "tool_calls"), (NAMED, "stop")], ids=["required", "named"])
def test_h2_calls_that_have_to_be_made(client: openai.OpenAI, choice: Any, reason: str) -> None:
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    whole = ask(client, **fields).choices[0]
    found = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls]
    check_calls(found)
    assert len(found) == 1
    assert (whole.finish_reason, whole.message.content) == (reason, None)
    names: list[str] = []
    arguments: list[str] = []
    reasons = []
    for chunk in ask(client, stream=True, **fields):
        piece = chunk.choices[0]
        assert not piece.delta.content
        for call in piece.delta.tool_calls or ():
            if call.id:
                names.append(call.function.name)
                arguments.append("")
            arguments[call.index] += call.function.arguments
        reasons += [piece.finish_reason] if piece.finish_reason else []
    assert list(zip(names, arguments, strict=True)) == found
    assert reasons == [reason]


def test_h2_several_choices_and_calls(client: openai.OpenAI) -> None:
    for choice in ask(client, tools=TOOLS, tool_choice="required", n=3, seed=5, top_p=0.9).choices:
        calls = choice.message.tool_calls or []
        if choice.finish_reason == "tool_calls":
            check_calls([(call.function.name, call.function.arguments) for call in calls])
            assert len({call.id for call in calls}) == len(calls)
        else:
            assert choice.finish_reason == "length"


def test_h2_none_with_tools_is_an_ordinary_answer(client: openai.OpenAI) -> None:
    choice = ask(client, tools=TOOLS, tool_choice="none").choices[0]
    assert choice.message.content
    assert choice.message.tool_calls is None
    assert "tool_call" not in choice.message.content


def test_h1_what_cannot_be_read_is_refused_before_it_runs(server: RunningServer) -> None:
    for stream in (False, True):
        error = server.refused(CHAT, {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "auto", "stream": stream})
        assert error["param"] == "tools"
        assert "--tool-call-parser" in error["message"]


def test_a_result_goes_back(client: openai.OpenAI) -> None:
    call = ask(client, tools=TOOLS, tool_choice=NAMED).choices[0].message
    talk = [*MESSAGES, call.model_dump(exclude_none=True)]
    talk.append({"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"})
    answer = client.chat.completions.create(model="demo", messages=talk, tools=TOOLS, tool_choice="none", max_tokens=5)
    assert answer.choices[0].message.content


def test_response_formats(client: openai.OpenAI) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    person = json.loads(ask(client, response_format=schema).choices[0].message.content)
    assert person.keys() == {"name", "age"}
    assert isinstance(person["age"], int)
    pieces = ask(client, response_format=schema, stream=True)
    assert json.loads("".join(piece.choices[0].delta.content or "" for piece in pieces)) == person
    some = ask(client, response_format={"type": "json_object"}, logit_bias={}).choices[0]
    assert some.message.content.lstrip().startswith("{")
    assert ask(client, response_format={"type": "text"}).choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, ("yes", "no")),
        ({"structured_outputs": {"regex": "(red|green) apple"}}, ("red apple", "green apple")),
        ({"structured_outputs": {"grammar": 'root ::= "a" | "b"'}}, ("a", "b")),
        ({"guided_choice": ["yes", "no"]}, ("yes", "no")),
        ({"guided_regex": "x{3}"}, ("xxx",)),
        ({"guided_json": {"const": 5}}, ("5",)),
        ({"guided_grammar": 'start: "z"'}, ("z",)),
        ({"structured_outputs": {"choice": ["yes"]}, "min_tokens": 5, "ignore_eos": True}, ("yes",)),
        ({"structured_outputs": {"choice": ["yes, no"]}, "stop": [","]}, ("yes",)),
    ],
    ids=str,
)
def test_vllms_fields_on_both_routes(server: RunningServer, fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    for temperature in (0, 1):
        choice = server.complete("Answer: ", max_tokens=20, temperature=temperature, **fields)["choices"][0]
        assert choice["text"] in expected
        assert choice["finish_reason"] == "stop"
    assert server.chat("Well?", max_tokens=20, **fields)["choices"][0]["message"]["content"] in expected
    body = {"messages": MESSAGES, "max_tokens": 20, **fields}
    assert joined(server.chunks(CHAT, body)) in expected


H4: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "banana"}}}}, "", "banana"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "("}}}},
        "",
        "unclosed",
    ),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": True}}}}, "", "uniqueItems"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "", "schema"),
    ({"response_format": {"type": "json_schema", "json_schema": []}}, "", "schema"),
    ({"response_format": {"type": "json_schema"}}, "", "schema"),
    ({"response_format": {"type": "banana"}}, "", "banana"),
    ({"response_format": {}}, "", "None"),
    ({"response_format": "json_object"}, "", "response_format"),
    ({"response_format": {"type": "structural_tag", "structures": []}}, "", "structures"),
    ({"structured_outputs": {"choice": []}}, "", "choice"),
    ({"structured_outputs": {"regex": "["}}, "", "unclosed"),
    ({"structured_outputs": {"grammar": "root ::="}, "guided_regex": "x"}, "", "guided_regex"),
    ({"structured_outputs": {"grammar": "!!!"}}, "", "Expected"),
    ({"structured_outputs": {}}, "", "empty"),
    ({"structured_outputs": {"jsno": {}}}, "", "jsno"),
    ({"structured_outputs": []}, "", "structured_outputs"),
    ({"guided_choice": ["x"] * 300_000}, "", "bytes"),
    ({"guided_json": "{"}, "", "Expecting"),
    ({"guided_regex": 5}, "", "guided_regex"),
]


@pytest.mark.parametrize(("fields", "param", "reason"), H4, ids=lambda value: str(value)[:60])
def test_h4_what_cannot_be_enforced_is_a_400(
    server: RunningServer, fields: dict[str, Any], param: str, reason: str
) -> None:
    for path, start in ((COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": MESSAGES})):
        error = server.refused(path, {**start, **fields})
        assert error["param"] == (param or next(iter(fields)))
        assert reason in error["message"]


def test_h4_a_tools_schema_is_named_too(server: RunningServer) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    tools = [{"type": "function", "function": function}]
    error = server.refused(CHAT, {"messages": MESSAGES, "tools": tools, "tool_choice": "required"})
    assert error["param"] == "tools"
    assert '"not"' in error["message"]


def test_a_grammar_that_allows_nothing_is_the_requests_fault(server: RunningServer) -> None:
    error = server.refused(COMPLETIONS, {"prompt": "Hi", "structured_outputs": {"grammar": "start: start"}})
    assert error["message"] == "The structured output cannot be enforced: nothing fits it."


def test_other_fields_that_forbid_all_the_grammar_allows_are_the_requests_fault(server: RunningServer) -> None:
    form = {"structured_outputs": {"choice": ["yes"]}, "bad_words": ["y", "ye", "yes"]}
    assert "leave no token" in server.refused(COMPLETIONS, {"prompt": "Hi", **form})["message"]


def test_schemas_that_refer_to_each_other_for_long_end_no_process(server: RunningServer) -> None:
    links = {f"d{index}": {"type": "array", "items": {"$ref": f"#/d{index + 1}"}} for index in range(3000)}
    schema = {"$ref": "#/d0", **links, "d3000": {"type": "boolean"}}
    answer = server.complete("Hi", max_tokens=4, structured_outputs={"json": schema})
    assert answer["choices"][0]["text"].strip().startswith("[")


def test_reasoning_effort_and_variables_reach_the_template(server: RunningServer) -> None:
    fields = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}, "include_reasoning": True}
    assert server.chat("Hi", **fields)["choices"][0]["message"]["content"]
