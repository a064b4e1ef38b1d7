"""Grammars of whole answers: reasoning first, then calls that have to be made, or what the request asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anychip.grammar.compiling import unchecked_text
from anychip.grammar.lark import LarkGrammar, either
from anychip.grammar.params import StructuredOutputsParams
from anychip.sampling_params import SamplingParams
from anychip.text.tokenizer import Tokenizer
from anychip_api.parsers.form import CallForm
from anychip_api.parsers.parser import Function, ToolParser
from anychip_api.reader import Reading
from anychip_api.tools import Tools


def constrain(params: SamplingParams, tools: Tools, reading: Reading, tokenizer: Tokenizer) -> SamplingParams:
    """Sampling that keeps to the tool choice, and lets a model think before what its answer has to fit.

    Raises `RequestError` for structured output that cannot be enforced.
    """
    structured, answer = params.structured_outputs, _Answer(tools, reading, tokenizer)
    if tools.mode == "required":
        text = answer.text(answer.calls())
    elif structured is not None and (reading.parsers.reasoning is not None or answer.may_call):
        whole = answer.text(either([*([answer.calls()] if answer.may_call else []), "@body"]))
        text = _with_body(whole, unchecked_text(structured))
    elif structured is None and answer.may_call and answer.strict:
        text = answer.text(answer.calls_in_text())
    else:
        return params
    return params.replace(structured_outputs=StructuredOutputsParams(grammar=text))


class _Answer:
    """Parts of an answer as expressions of one grammar."""

    def __init__(self, tools: Tools, reading: Reading, tokenizer: Tokenizer) -> None:
        self._tools = tools
        self._reading = reading
        self._parser = reading.parsers.tool
        self._special = special_markers(reading, tokenizer)
        self._grammar = LarkGrammar()

    @property
    def may_call(self) -> bool:
        """Whether the model decides about calls, and how it writes them is known."""
        return self._tools.mode == "auto" and self._parser is not None and self._parser.form is not None

    @property
    def strict(self) -> bool:
        """Whether calls within text have to be, and can be, kept to their schemas."""
        found = self._parser is not None and bool(self._parser.trigger)
        return found and any(function.strict for function in self._tools.functions)

    def calls(self) -> str:
        """Calls and nothing else."""
        return self._form.expression(self._grammar, self._functions, self._tools.parallel, self._special)

    def calls_in_text(self) -> str:
        """Text that may hold calls."""
        assert self._parser is not None, "a parser brings the trigger"
        trigger = self._parser.trigger
        return self._form.in_text(self._grammar, self._functions, self._tools.parallel, self._special, trigger)

    def text(self, answer: str) -> str:
        """The grammar of reasoning and an answer."""
        parser = self._reading.parsers.reasoning
        if parser is None:
            return self._grammar.text(answer)
        reasoning = parser(self._reading.functions)
        reasoning.begin(self._reading.prompt)
        calls = self._tools.mode == "required"
        return self._grammar.text(f"{reasoning.preamble(self._grammar, self._special, calls)} {answer}")

    @property
    def _form(self) -> CallForm:
        assert self._parser is not None and self._parser.form is not None, "the reading brings a parser with a form"
        return self._parser.form

    @property
    def _functions(self) -> list[Function]:
        """Those whose schemas need not be kept take any arguments."""
        required = self._tools.mode == "required"
        return [
            function if required or function.strict else replace(function, parameters={})
            for function in self._tools.functions
        ]


def special_markers(reading: Reading, tokenizer: Tokenizer) -> Mapping[str, int]:
    """The parsers' markers that are special tokens of the vocabulary, with their ids."""
    ids = {marker: tokenizer.token_to_id(marker) for marker in reading.markers}
    return {marker: token for marker, token in ids.items() if token is not None and tokenizer.is_special(token)}


def callable_parser(parser: type[ToolParser] | None, fallback: type[ToolParser]) -> type[ToolParser]:
    """The parser of calls that have to be made: the model's own, unless it cannot say how it writes them."""
    return parser if parser is not None and parser.form is not None else fallback


def _with_body(whole: str, body: str) -> str:
    """Both grammars in one text, the second one by the name that the first one calls it."""
    rest: list[dict[str, Any]] = json.loads(body)["grammars"] if body.startswith("{") else [{"lark_grammar": body}]
    rest[0]["name"] = "body"
    return json.dumps({"grammars": [{"name": "whole", "lark_grammar": whole}, *rest]})
