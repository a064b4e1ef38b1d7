"""Whatever a model samples under a tool choice, its parser reads calls out of it that fit their schemas."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher
from tests.api.test_parsers import reading
from tests.grammar.byte_model import END, byte_tokenizer

from anychip.engine.outputs import Delta
from anychip.errors import RequestError
from anychip.grammar.compiling import grammar_text
from anychip.grammar.vocabulary import grammar_vocabulary
from anychip.sampling_params import SamplingParams
from anychip_api.constraint import callable_parser, constrain
from anychip_api.parsers.hermes import HermesToolParser
from anychip_api.parsers.parts import Message
from anychip_api.parsers.registry import BUILT_IN
from anychip_api.reader import Reading
from anychip_api.tools import Tools, read_tools

TOKENIZER = byte_tokenizer()
VOCABULARY = grammar_vocabulary(TOKENIZER, END + 1, [END])
SCHEMAS: dict[str, Any] = {
    "weather": {"properties": {"city": {"enum": ["Paris", 'Zoë\'s "x"']}, "days": {"type": "boolean"}}},
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"const": None}},
        "required": ["a", "b"],
    },
    "now": None,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": value}} for name, value in SCHEMAS.items()]
NAMED = {"type": "function", "function": {"name": "add"}}
PARSERS = [name for kind, name in BUILT_IN if kind == "tool"]


def sample(params: SamplingParams, seed: int) -> str:
    """What a model that knows nothing writes under a grammar."""
    assert params.structured_outputs is not None
    matcher = LLMatcher(VOCABULARY, grammar_text(params.structured_outputs))
    chance, tokens, words = random.Random(seed), [], np.zeros(-(-(END + 1) // 32), np.int32)
    while not matcher.is_stopped():
        assert len(tokens) < 5000
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        tokens.append(chance.choice(allowed))
        assert matcher.consume_token(tokens[-1]), matcher.get_error()
    return TOKENIZER.decode(tokens)


def setting(tool: str, reasoning: str, choice: Any, prompt: str = "", **fields: Any) -> tuple[Tools, Reading]:
    tools = read_tools(TOOLS, choice, fields.get("parallel"))
    how = reading(tool, reasoning, prompt)
    parsers = type(how.parsers)(callable_parser(how.parsers.tool, HermesToolParser), how.parsers.reasoning)
    return tools, Reading(parsers, tools.functions, prompt, tools.named)


def check_call(name: str, arguments: str) -> None:
    value = json.loads(arguments)
    properties = (SCHEMAS[name] or {}).get("properties", {})
    assert value.keys() <= properties.keys()
    if name == "add":
        assert value["a"] in range(10)
        assert value["b"] is None
    if "city" in value:
        assert value["city"] in properties["city"]["enum"]


@pytest.mark.parametrize("tool", [*PARSERS, "none"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "add"}}], ids=["any", "named"]
)
def test_calls_that_have_to_be_made(tool: str, choice: Any) -> None:
    tools, how = setting(tool, "none", choice)
    params = constrain(SamplingParams(), tools, how, TOKENIZER)
    for seed in range(12):
        gained = how.reader().read(Delta(0, sample(params, seed), finish_reason="stop"))
        message = Message().add(gained.parts)
        assert message.content == ""
        assert message.tool_calls
        for call in message.tool_calls:
            check_call(call.name, call.arguments)
        if tools.named:
            assert [call.name for call in message.tool_calls] == ["add"]
        assert gained.finish_reason == ("stop" if tools.named else "tool_calls")


@pytest.mark.parametrize("prompt", ["", "<think>\n"])
def test_a_model_may_think_first(prompt: str) -> None:
    tools, how = setting("hermes", "think", "required", prompt)
    params = constrain(SamplingParams(), tools, how, TOKENIZER)
    assert params.structured_outputs is not None
    matcher = LLMatcher(VOCABULARY, grammar_text(params.structured_outputs))
    first = "" if prompt else "<think>"
    text = f'{first}Hm.</think>\n\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>'
    ids = TOKENIZER.encode(text)
    assert matcher.try_consume_tokens(ids) == len(ids)
    message = Message().add(how.reader().read(Delta(0, text, finish_reason="stop")).parts)
    assert (message.reasoning, message.content, message.tool_calls[0].name) == ("Hm.", "", "now")


def test_an_answer_that_has_to_fit_may_be_a_call_or_come_after_thoughts() -> None:
    tools, how = setting("hermes", "think", "auto")
    params = SamplingParams(structured_outputs={"json": {"type": "integer"}})
    text = grammar_text(constrain(params, tools, how, TOKENIZER).structured_outputs)
    good = ["5", "<think>x</think>\n5", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>']
    for answer in good:
        matcher = LLMatcher(VOCABULARY, text)
        ids = TOKENIZER.encode(answer)
        assert matcher.try_consume_tokens(ids) == len(ids), answer
        assert matcher.is_accepting()
    for answer in ("x", "<think>x</think>x", "<tool_call>5"):
        ids = TOKENIZER.encode(answer)
        assert LLMatcher(VOCABULARY, text).try_consume_tokens(ids) < len(ids), answer


@pytest.mark.parametrize("tool", ["hermes", "granite", "mistral", "mistral_v11", "deepseek_v3", "kimi_k2"])
def test_strict_functions_keep_to_their_schema_in_free_text(tool: str) -> None:
    strict = [{"type": "function", "function": {**one["function"], "strict": True}} for one in TOOLS]
    tools, how = setting(tool, "none", "required")
    calls = [sample(constrain(SamplingParams(), tools, how, TOKENIZER), seed) for seed in range(4)]
    free = read_tools([*strict[:2], TOOLS[2]], "auto", None)
    text = grammar_text(constrain(SamplingParams(), free, how, TOKENIZER).structured_outputs)
    for call in calls:
        for answer in ("Just words.", call, f"Let me see. {call}"):
            ids = TOKENIZER.encode(answer)
            matcher = LLMatcher(VOCABULARY, text)
            assert matcher.try_consume_tokens(ids) == len(ids), answer
            assert matcher.is_accepting()
        wrong = "words " + call.replace('"a"', '"z"').replace('"city"', '"zity"').replace('"days"', '"zays"')
        if "{}" not in wrong and wrong != f"words {call}":
            assert LLMatcher(VOCABULARY, text).try_consume_tokens(TOKENIZER.encode(wrong)) < len(wrong)


def test_nothing_is_constrained_that_need_not_be() -> None:
    tools, how = setting("hermes", "think", "auto")
    plain = SamplingParams()
    assert constrain(plain, tools, how, TOKENIZER) is plain


@pytest.mark.parametrize(
    ("tools", "choice", "reason"),
    [
        ([], "required", "no tools"),
        (None, "required", "no tools"),
        (TOOLS, "always", "not known"),
        (TOOLS, {"type": "function", "function": {"name": "nope"}}, "'nope'"),
        (TOOLS, {"type": "function"}, "names no function"),
        (TOOLS, {"type": "banana"}, "not known"),
        ([*TOOLS, TOOLS[0]], None, "two functions named"),
        ([{"type": "custom"}], None, "type 'custom'"),
        ([{"type": "function"}], None, "not an object"),
        ([{"type": "function", "function": {"name": "a b"}}], None, "no function name"),
        ([{"type": "function", "function": {"name": "a", "parameters": []}}], None, "parameters"),
    ],
)
def test_bad_tools_are_named(tools: Any, choice: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        read_tools(tools, choice, None)
    assert caught.value.param in ("tools", "tool_choice")


def test_allowed_tools_are_a_choice_among_them() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}
    tools = read_tools(TOOLS, {"type": "allowed_tools", "allowed_tools": allowed}, None)
    assert ([function.name for function in tools.functions], tools.mode, tools.named) == (["now"], "required", False)
