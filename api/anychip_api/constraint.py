"""Grammars of whole answers: reasoning first, then calls that have to be made, or what the request asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anychip.grammar.compiling import unchecked_text
from anychip.grammar.lark import LarkGrammar, either
from anychip.grammar.params import StructuredOutputsParams
from anychip.sampling_params import SamplingParams
from anychip.text.tokenizer import Tokenizer
from anychip_api.parsers.parser import ReasoningParser, ToolParser
from anychip_api.reader import Reading
from anychip_api.tools import Tools


def constrain(params: SamplingParams, tools: Tools, reading: Reading, tokenizer: Tokenizer) -> SamplingParams:
    """Sampling that keeps to the tool choice, and lets a model think before what its answer has to fit.

    Raises `RequestError` for structured output that cannot be enforced.
    """
    required = tools.mode == "required"
    structured = params.structured_outputs
    parsers, functions = reading.parsers, tools.functions
    thinks = parsers.reasoning is not None
    may_call = tools.mode == "auto" and parsers.tool is not None and parsers.tool.form is not None
    if not required and (structured is None or not (thinks or may_call)):
        return params
    grammar, special = LarkGrammar(), special_markers(reading, tokenizer)
    before = _preamble(parsers.reasoning, reading, grammar, special, required) if parsers.reasoning else ""
    answers: list[str] = []
    if required or may_call:
        assert parsers.tool is not None and parsers.tool.form is not None, "the reading brings a parser with a form"
        answers.append(parsers.tool.form.expression(grammar, functions, tools.parallel, special))
    if required or structured is None:
        text = grammar.text(f"{before} {answers[0]}")
    else:
        text = _with_body(grammar.text(f"{before} {either([*answers, '@body'])}"), unchecked_text(structured))
    return params.replace(structured_outputs=StructuredOutputsParams(grammar=text))


def special_markers(reading: Reading, tokenizer: Tokenizer) -> Mapping[str, int]:
    """The parsers' markers that are special tokens of the vocabulary, with their ids."""
    ids = {marker: tokenizer.token_to_id(marker) for marker in reading.markers}
    return {marker: token for marker, token in ids.items() if token is not None and tokenizer.is_special(token)}


def callable_parser(parser: type[ToolParser] | None, fallback: type[ToolParser]) -> type[ToolParser]:
    """The parser of calls that have to be made: the model's own, unless it cannot say how it writes them."""
    return parser if parser is not None and parser.form is not None else fallback


def _preamble(
    parser: type[ReasoningParser], reading: Reading, grammar: LarkGrammar, special: Mapping[str, int], calls: bool
) -> str:
    reasoning = parser(reading.functions)
    reasoning.begin(reading.prompt)
    return reasoning.preamble(grammar, special, calls)


def _with_body(whole: str, body: str) -> str:
    """Both grammars in one text, the second one by the name that the first one calls it."""
    rest: list[dict[str, Any]] = json.loads(body)["grammars"] if body.startswith("{") else [{"lark_grammar": body}]
    rest[0]["name"] = "body"
    return json.dumps({"grammars": [{"name": "whole", "lark_grammar": whole}, *rest]})
