"""Tool calls and reasoning out of text: what a family writes, and that its cutting into pieces changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anychip.engine.outputs import Delta
from anychip.errors import UserError
from anychip_api.parsers.parser import Function
from anychip_api.parsers.parts import Message
from anychip_api.parsers.registry import Parsers, choose_parsers
from anychip_api.reader import Reading

FUNCTIONS = [Function("weather", {"type": "object"}), Function("add", {"type": "object"})]
PARIS = {"city": 'Pa}r"i</s>\\', "days": [1, {"x": None}]}
ADD = {"a": 1, "b": -2.5}


@dataclass(frozen=True)
class Case:
    """What a model writes and what it means; calls are (name, arguments)."""

    parser: str
    text: str
    calls: tuple[tuple[str, Any], ...] = ()
    content: str = ""


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(name: str, arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {dumps(arguments)}}}\n</tool_call>'


CASES = [
    Case("hermes", hermes("weather", PARIS), (("weather", PARIS),)),
    Case("hermes", hermes("weather", PARIS) + "\n" + hermes("add", ADD), (("weather", PARIS), ("add", ADD))),
    Case("hermes", "Let me see. \n\n" + hermes("add", ADD) + "\n", (("add", ADD),), "Let me see."),
    Case("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>', (("add", {"a": 1}),)),
    Case("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', (("add", {"a": 1}),)),
    Case("hermes", '<tool_call>{"name": "add"}</tool_call>', (("add", {}),)),
    Case("hermes", '<tool_call>[{"name": "add", "arguments": {}}]</tool_call>', (("add", {}),)),
    Case("hermes", " 1 < 2, <tool_cal> and <tool_call>{no json\n", (), " 1 < 2, <tool_cal> and <tool_call>{no json\n"),
    Case("hermes", '<tool_call>{"city": "Paris"}</tool_call>!', (), '<tool_call>{"city": "Paris"}</tool_call>!'),
    Case("hermes", "No call at all.\n", (), "No call at all.\n"),
]
THOUGHTS = [
    ("", "<think>\nFirst 1 < 2.\n\n</think>\n\nYes.\n", "First 1 < 2.", "Yes.\n"),
    ("<think>\n", "Well.\n</think>\nYes.", "Well.", "Yes."),
    ("<think>\n\n</think>\n\n", "Yes.", "", "Yes."),
    ("", "  Yes <think> no", "", "  Yes <think> no"),
    ("<think>", "never ends", "never ends", ""),
]


def reading(tool: str = "none", reasoning: str = "none", prompt: str = "", **changes: Any) -> Reading:
    return Reading(choose_parsers(tool, reasoning, "", dict), FUNCTIONS, prompt, **changes)


def read(how: Reading, text: str, cuts: list[int] | None = None) -> tuple[Message, str | None]:
    """The message that `text` makes when it comes in pieces that end at `cuts`."""
    reader, message = how.reader(), Message()
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts or [])})
    for start, end in pairwise(edges):
        message.add(reader.read(Delta(0, text[start:end])).parts)
    last = reader.read(Delta(0, finish_reason="stop"))
    return message.add(last.parts), last.finish_reason


def calls(message: Message) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parser}: {case.text[:30]!r}")
def test_a_family_is_read(case: Case) -> None:
    message, reason = read(reading(case.parser), case.text)
    assert calls(message) == list(case.calls)
    assert message.content == case.content
    assert len({call.id for call in message.tool_calls}) == len(case.calls)
    assert reason == ("tool_calls" if case.calls else "stop")


@given(case=st.sampled_from(CASES), cuts=st.lists(st.integers(0, 10_000), max_size=40), length=st.integers(0, 400))
def test_any_split_of_any_beginning_gives_the_same(case: Case, cuts: list[int], length: int) -> None:
    text = case.text[:length] if length < len(case.text) else case.text
    once, twice = read(reading(case.parser), text), read(reading(case.parser), text, cuts)
    for message, _ in (once, twice):
        for call in message.tool_calls:
            call.id = ""
    assert once == twice


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parser}: {case.text[:30]!r}")
def test_character_by_character(case: Case) -> None:
    message, _ = read(reading(case.parser), case.text, list(range(len(case.text))))
    assert calls(message) == list(case.calls)
    assert message.content == case.content


@pytest.mark.parametrize(("prompt", "text", "reasoning", "content"), THOUGHTS)
def test_reasoning_comes_before_the_answer(prompt: str, text: str, reasoning: str, content: str) -> None:
    for cuts in ([], list(range(len(text)))):
        message, _ = read(reading(reasoning="think", prompt=prompt), text, cuts)
        assert (message.reasoning, message.content) == (reasoning, content)


def test_reasoning_and_then_a_call() -> None:
    message, reason = read(reading("hermes", "think"), "<think>Add.</think>\n" + hermes("add", ADD))
    assert (message.reasoning, message.content, calls(message)) == ("Add.", "", [("add", ADD)])
    assert reason == "tool_calls"


def test_arguments_stream_as_they_come() -> None:
    reader = reading("hermes").reader()
    assert reader.read(Delta(0, '<tool_call>{"name": "add", "arguments": {"a"')).parts[-1].text == '{"a"'
    assert reader.read(Delta(0, ": 1")).parts[-1].text == ": 1"


def test_what_a_request_asks_of_its_calls() -> None:
    text = hermes("add", ADD) + hermes("weather", PARIS)
    assert read(reading("hermes", named=True), text)[1] == "stop"
    message, reason = read(reading("hermes", most_calls=1), text)
    assert (calls(message), reason) == ([("add", ADD)], "tool_calls")
    message, reason = read(reading("hermes", most_calls=0), text)
    assert (calls(message), message.content, reason) == ([], "", "stop")


def test_the_chat_template_names_the_parsers() -> None:
    found = choose_parsers(None, None, "... <tool_call> ... <think> ...", dict)
    assert found == choose_parsers("hermes", "deepseek_r1", "", dict)
    assert choose_parsers(None, None, "{{ messages }}", dict) == Parsers()
    assert choose_parsers("none", "none", "<tool_call> <think>", dict) == Parsers()


def test_a_parser_that_does_not_exist_is_named() -> None:
    with pytest.raises(UserError, match=r"no tool parser .x.\..*hermes"):
        choose_parsers("x", None, "", dict)


def test_a_plugins_parser_is_found_by_its_name() -> None:
    path = "anychip_api.parsers.hermes:HermesToolParser"
    assert choose_parsers("mine", None, "", lambda: {("tool", "mine"): path}).tool is not None
    with pytest.raises(UserError, match="cannot be loaded"):
        choose_parsers("mine", None, "", lambda: {("tool", "mine"): "nowhere:Parser"})
    with pytest.raises(UserError, match="is no ReasoningParser"):
        choose_parsers(None, "mine", "", lambda: {("reasoning", "mine"): path})
