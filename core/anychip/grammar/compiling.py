"""From a request's structured output to the text of a llguidance grammar, checked."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import any_to_lark

from anychip.errors import RequestError
from anychip.grammar.deep import MOST_PARTS, call_deep
from anychip.grammar.lark import LarkGrammar, either, json_schema, literal, regex
from anychip.grammar.params import FIELD, StructuredOutputsParams
from anychip.grammar.structural_tag import read_structural_tag

KEPT = 128
LONGEST = 1 << 20
"""Bytes of the largest grammar that is taken."""

MOST_GBNF_RULES = 1000
"""Rules of the largest grammar in GBNF's syntax: putting it into Lark's takes time that grows with their square."""

LONGEST_REASON = 400
_QUOTED = re.compile(r"\n\s*\d+ \|")
"""Where the validator begins to quote the grammar."""
_PLACE = re.compile(r"^at \d+\(\d+\): (?=failed to compile JSON|invalid regex)")
"""A place in a grammar that we wrote around a schema or an expression."""
_TOLD = {"NoExtensionBias": "nothing fits it"}
"""What llguidance says where it means a thing that has a plainer word."""


def limits() -> LLParserLimits:
    """What a grammar may cost; errors that say no more than a person can use."""
    return LLParserLimits(verbose_errors=False)


class CheckedGrammars:
    """Grammars that were checked, those asked for last; a thread may ask for one ahead."""

    def __init__(self) -> None:
        self._texts: OrderedDict[bytes, str] = OrderedDict()

    def knows(self, params: StructuredOutputsParams) -> bool:
        """Whether `text` would answer at once."""
        return _key(params) in self._texts

    def text(self, params: StructuredOutputsParams) -> str:
        """The grammar that a request asks for. Raises `RequestError` with the validator's message."""
        key = _key(params)
        text = self._texts.get(key) or grammar_text(params)
        self._texts[key] = text
        self._texts.move_to_end(key)
        while len(self._texts) > KEPT:
            self._texts.popitem(last=False)
        return text


def grammar_text(params: StructuredOutputsParams) -> str:
    """The grammar that a request asks for. Raises `RequestError` with the validator's message."""
    text = unchecked_text(params)
    wrong, messages = call_deep(lambda: LLMatcher.validate_grammar_with_warnings(text, limits=limits()))
    if wrong:
        raise refusal(messages[0])
    return text


def unchecked_text(params: StructuredOutputsParams) -> str:
    """The same, which may still be wrong in itself. Raises `RequestError` for what is no such form, or too large."""
    try:
        text = _build(params)
        size = len(text.encode())
    except (ValueError, RecursionError) as error:
        raise refusal(str(error) or type(error).__name__) from None
    if size > LONGEST:
        raise refusal(f"it has {size} bytes, which is more than {LONGEST}")
    parts = sum(map(text.count, ":([" if params.form == "grammar" else ":"))
    if parts > MOST_PARTS:
        raise refusal(f"it has {parts} rules, groups and parts of schemas, which is more than {MOST_PARTS}")
    return text


def _key(params: StructuredOutputsParams) -> bytes:
    try:
        return msgspec.msgpack.encode(params)
    except (ValueError, TypeError, RecursionError) as error:
        raise refusal(str(error) or type(error).__name__) from None


def refusal(reason: str) -> RequestError:
    """The error for a grammar that cannot be enforced."""
    told = " ".join(_PLACE.sub("", _QUOTED.split(reason)[0]).replace("<non-verbose/>", "").split())
    told = _TOLD.get(told, told)
    return RequestError(f"The structured output cannot be enforced: {told[:LONGEST_REASON]}.", FIELD)


def _build(params: StructuredOutputsParams) -> str:
    match params.form:
        case "json":
            return _json_grammar(_document(params.json), params)
        case "json_object":
            return _json_grammar({"type": "object"}, params)
        case "regex":
            return LarkGrammar().text(regex(params.regex or ""))
        case "choice":
            return _choice_grammar(params.choice or ())
        case "structural_tag":
            return read_structural_tag(_document(params.structural_tag))
    return _lark(params.grammar or "")


def _json_grammar(schema: Any, params: StructuredOutputsParams) -> str:
    options: dict[str, Any] = {}
    if params.whitespace_pattern is not None:
        options["whitespace_pattern"] = params.whitespace_pattern
    if params.disable_any_whitespace:
        options["whitespace_flexible"] = False
    return LarkGrammar().text(json_schema(schema, options))


def _choice_grammar(choice: Sequence[str]) -> str:
    """One token for all of them: as so many rules, a few thousand are too many."""
    grammar = LarkGrammar()
    return grammar.text(grammar.terminal(either(map(literal, choice))))


def _document(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _lark(grammar: str) -> str:
    """A grammar in Lark's syntax or GBNF's, in Lark's; several in llguidance's own JSON stay as they are."""
    if grammar.startswith("{"):
        return grammar
    rules = grammar.count("::=")
    if rules > MOST_GBNF_RULES:
        raise ValueError(f"it has {rules} rules, and in GBNF's syntax {MOST_GBNF_RULES} are the most")
    try:
        return str(any_to_lark(grammar))
    except Exception as error:  # the library raises plain ones for a GBNF grammar that is wrong
        raise ValueError(str(error)) from error
