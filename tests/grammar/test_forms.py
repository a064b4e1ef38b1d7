"""What a request asks for becomes a grammar that takes exactly that, or a sentence that says why not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher
from tests.grammar.byte_model import END, byte_tokenizer

from anychip.errors import RequestError
from anychip.grammar.compiling import MOST_GBNF_RULES, CheckedGrammars, grammar_text
from anychip.grammar.deep import MOST_PARTS
from anychip.grammar.follow import Grammars
from anychip.grammar.params import StructuredOutputsParams
from anychip.grammar.vocabulary import grammar_vocabulary
from anychip.sampling_params import SamplingParams

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
OLD_TAG = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"},
        {"begin": "<g=1>", "schema": {"type": "integer"}, "end": "</g>"},
    ],
    "triggers": ["<f", "<g="],
}
THOUGHT = {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"}
LETTERS = {"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "[ab]+"}, "end": ">"}


def as_format(**fields: Any) -> dict[str, Any]:
    return {"structural_tag": {"type": "structural_tag", "format": fields}}


FORMS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"json": PERSON}, ['{"name": "Zoë", "age": 3}', '{\n "name":"", "age":0}'], ['{"name": 1, "age": 3}', "{}", "x"]),
    ({"json": json.dumps(PERSON)}, ['{"name": "x", "age": 3}'], ['{"age": 3, "name": "x", "b": 1}', '{"name": "x"}']),
    ({"json": PERSON, "disable_any_whitespace": True}, ['{"name":"x","age":3}'], ['{"name": "x","age":3}']),
    ({"json": True}, ["1", "[{}]"], ["x"]),
    ({"json_object": True}, ["{}", '{"a": [1, null]}'], ["1", "[]"]),
    ({"regex": r"\d{3}-[a/]+"}, ["123-a/a"], ["12-a", "123-a-"]),
    ({"regex": "^yes|no$"}, ["yes", "no"], ["yesno", "maybe"]),
    ({"choice": ["yes", 'n"o\n', "ü/"]}, ["yes", 'n"o\n', "ü/"], ["y", "yesyes"]),
    ({"choice": [f"value {index}" for index in range(10_000)]}, ["value 1", "value 10", "value 9999"], ["value"]),
    ({"grammar": 'root ::= "a" | "b" root'}, ["a", "bba"], ["b", "ab"]),
    ({"grammar": 'start: "a" | "b" start'}, ["a", "bba"], ["b", "ab"]),
    ({"structural_tag": OLD_TAG}, ["hello", 'a <f>{"x":1}</f> b <g=1>5</g>'], ["a <f>5</f>", "<g=2>"]),
    ({"structural_tag": json.dumps(OLD_TAG)}, ["hello"], ["<f>"]),
    (
        as_format(type="sequence", elements=[THOUGHT, {"type": "json_schema", "json_schema": {"type": "integer"}}]),
        ["<think>a < b</think>5"],
        ["5", "<think>a</think>x"],
    ),
    (as_format(type="or", elements=[{"type": "const_string", "value": "x"}, LETTERS]), ["x", "<ab>"], ["<x>", ""]),
    (as_format(type="tags_with_separator", tags=[LETTERS], separator=","), ["", "<a>", "<a>,<b>"], ["<a><b>"]),
    (as_format(type="tags_with_separator", tags=[LETTERS], separator=",", at_least_one=True), ["<a>"], [""]),
    (as_format(type="triggered_tags", triggers=["<"], tags=[LETTERS], at_least_one=True), ["x <a> y"], ["x y", "<c>"]),
    (as_format(type="triggered_tags", triggers=["<"], tags=[LETTERS], stop_after_first=True), ["x <a>"], ["<a> y"]),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
    ({"json": {"not": {}}}, "not"),
    ({"json": {"type": "object", "properties": {"a": {"if": {}, "then": {}}}}}, "if"),
    ({"json": {"type": "banana"}}, "banana"),
    ({"json": {"type": "string", "pattern": "("}}, "unclosed group"),
    ({"json": {"type": "string", "pattern": "(?=a)b"}}, "look-around"),
    ({"json": {"type": "string", "format": "banana"}}, "banana"),
    ({"json": {"$ref": "https://example.com/schema"}}, "example.com"),
    ({"json": {"enum": []}}, "anyOf is empty"),
    ({"json": {"type": "integer", "minimum": 5, "maximum": 2}}, "minimum"),
    ({"json": "{"}, "Expecting property name"),
    ({"json": "5"}, "schema must be an object"),
    ({"json": []}, "structured_outputs"),
    ({"regex": "("}, "unclosed group"),
    ({"regex": ""}, "must be a text"),
    ({"regex": 5}, "regex"),
    ({"choice": []}, "at least one"),
    ({"choice": [""]}, "none of them empty"),
    ({"choice": "yes"}, "choice"),
    ({"grammar": 'root ::= "a" b'}, "'b' not found"),
    ({"grammar": 'start: "a" b'}, 'unknown name: "b"'),
    ({"grammar": "!"}, "Expected name"),
    ({"structural_tag": {}}, "structures"),
    ({"structural_tag": "[]"}, "not an object"),
    ({"structural_tag": {"structures": [{"begin": "<a>", "end": ""}], "triggers": ["<b"]}}, "begins none"),
    ({"structural_tag": {"structures": [{"begin": "<a>", "end": ""}], "triggers": 5}}, "begins none"),
    ({"structural_tag": {"structures": [{"begin": "<a>", "end": ""}]}}, "begins none"),
    ({"structural_tag": {"structures": [{"begin": 5}], "triggers": ["a"]}}, "begin is 5"),
    (as_format(type="grammar_of_mine"), "known are"),
    (as_format(type=[]), "known are"),
    (as_format(type="tag", begin="", content=5, end=""), "known are"),
    ({}, "is empty"),
    ({"json_object": False}, "is empty"),
    ({"regex": "a", "json": {}}, "json and regex"),
    ({"jsno": {}}, "jsno"),
]


TOKENIZER = byte_tokenizer()
VOCABULARY = grammar_vocabulary(TOKENIZER, 300, [END])


def takes(grammar: str, text: str) -> bool:
    """Whether `text` as a whole fits."""
    matcher = LLMatcher(VOCABULARY, grammar)
    assert not matcher.is_error(), matcher.get_error()
    ids = TOKENIZER.encode(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize(("form", "good", "bad"), FORMS, ids=lambda value: str(value)[:60])
def test_a_grammar_takes_what_was_asked_for(form: dict[str, Any], good: list[str], bad: list[str]) -> None:
    params = SamplingParams(structured_outputs=form).structured_outputs
    assert params is not None
    grammar = grammar_text(params)
    assert [text for text in good if not takes(grammar, text)] == []
    assert [text for text in bad if takes(grammar, text)] == []


@pytest.mark.parametrize(("form", "reason"), REFUSED, ids=str)
def test_what_cannot_be_enforced_is_named(form: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        CheckedGrammars().text(SamplingParams(structured_outputs=form).structured_outputs)
    assert caught.value.param == "structured_outputs"
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600


def test_size_is_limited() -> None:
    schema = {"type": "object", "properties": {f"p{index}": {"const": "x" * 100} for index in range(10_000)}}
    with pytest.raises(RequestError, match="bytes"):
        grammar_text(StructuredOutputsParams(json=schema))
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"items": deep}
    with pytest.raises(RequestError, match="cannot be enforced"):
        grammar_text(StructuredOutputsParams(json=deep))
    with pytest.raises(RequestError, match="cannot be enforced"):
        CheckedGrammars().text(StructuredOutputsParams(json=deep))
    with pytest.raises(RequestError, match="surrogates"):
        grammar_text(StructuredOutputsParams(choice=("\ud800",)))


def chain_of_rules(length: int) -> str:
    rules = (f'r{index}: "x" r{index + 1}?' for index in range(length))
    return "\n".join(["start: r0", *rules, f'r{length}: "z"'])


def chain_of_schemas(length: int) -> dict[str, Any]:
    links = {f"d{index}": {"type": "array", "items": {"$ref": f"#/d{index + 1}"}} for index in range(length)}
    return {"$ref": "#/d0", **links, f"d{length}": {"type": "string"}}


@pytest.mark.parametrize(
    "form", [{"grammar": chain_of_rules(8000)}, {"json": chain_of_schemas(4000)}], ids=lambda form: next(iter(form))
)
def test_what_refers_to_each_other_for_long_fills_no_stack(form: dict[str, Any]) -> None:
    grammars = Grammars(lambda: VOCABULARY, 300)
    try:
        follower = grammars.follow(grammar_text(StructuredOutputsParams(**form)), [END], True)
        assert follower.fill(np.zeros(10, np.int32))
    finally:
        grammars.close()


def test_parts_are_limited() -> None:
    with pytest.raises(RequestError, match=f"more than {MOST_PARTS}"):
        grammar_text(StructuredOutputsParams(grammar=chain_of_rules(MOST_PARTS)))
    groups = "\n".join(f"r{index}: {'(' * 20} r{index + 1} {')' * 20}" for index in range(MOST_PARTS // 20))
    with pytest.raises(RequestError, match=f"more than {MOST_PARTS}"):
        grammar_text(StructuredOutputsParams(grammar=f"start: r0\n{groups}"))
    gbnf = "\n".join(f'r{index} ::= "x" r{index + 1}' for index in range(MOST_GBNF_RULES + 1))
    with pytest.raises(RequestError, match=f"{MOST_GBNF_RULES} are the most"):
        grammar_text(StructuredOutputsParams(grammar=f"root ::= r0\n{gbnf}"))


def test_a_model_without_an_end_of_sequence_has_a_vocabulary() -> None:
    matcher = LLMatcher(grammar_vocabulary(TOKENIZER, 257, []), 'start: "a"')
    assert matcher.try_consume_tokens(TOKENIZER.encode("a")) == 1
    assert matcher.is_stopped()
