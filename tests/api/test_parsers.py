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

FUNCTIONS = [
    Function("weather", {"type": "object", "properties": {"city": {"type": "string"}}}),
    Function("add", {"type": "object"}),
]
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


def listed(*calls: tuple[str, Any]) -> str:
    return dumps([{"name": name, "arguments": arguments} for name, arguments in calls])


BOTH = (("weather", PARIS), ("add", ADD))
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
    + dumps(PARIS)
    + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    + dumps(ADD)
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
DEEPSEEK_31 = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{dumps(PARIS)}<｜tool▁call▁end｜>"
    f"<｜tool▁call▁begin｜>add<｜tool▁sep｜>{dumps(ADD)}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
KIMI = (
    f"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{dumps(PARIS)}"
    f"<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{dumps(ADD)}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)
GLM = (
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>New York</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>[1, 2]</arg_value>\n</tool_call>\n<tool_call>add\n</tool_call>"
)
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nNew York\n</parameter>\n<parameter=days>\n[1, 2]\n"
    "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n</function>\n</tool_call>"
)
YORK = (("weather", {"city": "New York", "days": [1, 2]}), ("add", {}))
HARMONY = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Adding.<|end|>"
    f"<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{dumps(ADD)}"
)
LLAMA = '{"name": "weather", "parameters": ' + dumps(PARIS) + '}; {"name": "add", "parameters": ' + dumps(ADD) + "}"
CASES += [
    Case("deepseek_v3", DEEPSEEK, BOTH),
    Case("deepseek_v3", "Words.\n" + DEEPSEEK, BOTH, "Words."),
    Case("deepseek_v31", DEEPSEEK_31, BOTH),
    Case("kimi_k2", "Words. " + KIMI, BOTH, "Words."),
    Case("glm", "\n" + GLM, YORK),
    Case("glm", "<tool_call></tool_call>", (), "<tool_call></tool_call>"),
    Case("qwen3_coder", "Words.\n" + CODER, YORK, "Words."),
    Case("mistral", "[TOOL_CALLS] " + listed(*BOTH), BOTH),
    Case("mistral", "[TOOL_CALLS] [1, 2]", (), "[TOOL_CALLS] [1, 2]"),
    Case("mistral_v11", f"Words.[TOOL_CALLS]weather[ARGS]{dumps(PARIS)}[TOOL_CALLS]add{dumps(ADD)}", BOTH, "Words."),
    Case("mistral_v11", f"[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{dumps(ADD)}", (("add", ADD),)),
    Case("phi4", "functools" + listed(*BOTH), BOTH),
    Case("phi4", "functools is a module", (), "functools is a module"),
    Case("granite", "<|tool_call|>" + listed(*BOTH), BOTH),
    Case("llama3_json", LLAMA, BOTH),
    Case("llama3_json", "<|python_tag|>" + LLAMA, BOTH),
    Case("llama3_json", '{"name": "Bob", "age": 5}', (), '{"name": "Bob", "age": 5}'),
    Case("llama3_json", "[1] says {}", (), "[1] says {}"),
    Case(
        "pythonic",
        "[weather(city='a)\\'b', days=[1, {'x': None}]), add(a=1, b=-2.5)]",
        (("weather", {"city": "a)'b", "days": [1, {"x": None}]}), ("add", ADD)),
    ),
    Case("pythonic", "<|python_start|>[add(a=true)]<|python_end|>", (("add", {"a": True}),)),
    Case("pythonic", "[add(1)] and [nothing()]", (), "[add(1)] and [nothing()]"),
    Case("harmony", HARMONY, (("add", ADD),), "Adding."),
    Case("harmony", "<|channel|>final<|message|>Yes.<|return|>", (), "Yes."),
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


def test_harmony_thinks_in_a_channel() -> None:
    for parsers in (("harmony", "harmony"), ("none", "harmony"), ("harmony", "none")):
        message, reason = read(reading(*parsers), HARMONY)
        assert (message.reasoning, message.content, calls(message)) == ("Hm.", "Adding.", [("add", ADD)])
        assert reason == "tool_calls"


def test_granite_thinks_in_words() -> None:
    text = "Here is my thought process:\nHm.\nHere is my response:\nYes."
    message, _ = read(reading(reasoning="granite"), text, list(range(len(text))))
    assert (message.reasoning, message.content) == ("Hm.", "Yes.")


def test_ids_are_the_familys_own() -> None:
    assert [call.id for call in read(reading("kimi_k2"), KIMI)[0].tool_calls] == [
        "functions.weather:0",
        "functions.add:1",
    ]
    assert all(len(call.id) == 9 for call in read(reading("mistral"), "[TOOL_CALLS]" + listed(*BOTH))[0].tool_calls)
    given = read(reading("mistral_v11"), f"[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{dumps(ADD)}")[0]
    assert given.tool_calls[0].id == "abcdefghi"


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("harmony", "<|channel|>analysis <tool_call>"),
        ("glm", "<tool_call> <arg_key>"),
        ("qwen3_coder", "<tool_call> <function= <parameter="),
        ("kimi_k2", "<|tool_calls_section_begin|>"),
        ("deepseek_v3", "<｜tool▁call▁begin｜> ```json"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>"),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral_v11", "[TOOL_CALLS] [ARGS]"),
        ("phi4", "<|tool_call|> <|/tool_call|>"),
        ("granite", "<|tool_call|>"),
        ("hermes", "<tool_call>"),
        ("pythonic", "[func_name1(params_name1="),
        ("llama3_json", '<|eot_id|> {"name": function name, "parameters": dictionary}'),
    ],
)
def test_a_template_shows_its_family(name: str, template: str) -> None:
    assert choose_parsers(None, "none", template, dict) == choose_parsers(name, "none", "", dict)
