"""How a family writes its calls, for the grammar of a call that has to be made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychip.grammar.lark import ANY_TEXT, LarkGrammar, either, json_schema, literal
from anychip_api.parsers.parser import Function

_WRITTEN_AS_TRAINED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class CallForm:
    """`begin`, then calls with `between` between them, then `end`; a call is `head` name `middle` arguments `tail`.

    Where `number` is set, the call's number follows the name, and `middle` follows that.
    """

    head: str
    middle: str
    tail: str = ""
    begin: str = ""
    between: str = ""
    end: str = ""
    number: str = ""
    """What comes between the name and the call's number."""
    single: bool = False
    """Whether an answer holds one call only."""

    def expression(
        self, grammar: LarkGrammar, functions: Sequence[Function], several: bool, special: Mapping[str, int]
    ) -> str:
        """At least one call of one of the functions, and no more unless `several`, as an expression of the grammar."""
        call = grammar.rule(either(self._call(grammar, function, special) for function in functions))
        return f"{literal(self.begin, special)} {call} {self._rest(grammar, functions, several, special)}"

    def in_text(
        self,
        grammar: LarkGrammar,
        functions: Sequence[Function],
        several: bool,
        special: Mapping[str, int],
        trigger: str,
    ) -> str:
        """Any text, in which `trigger`, the beginning of a first call, begins calls."""
        if trigger in special:
            text = f"{grammar.terminal(ANY_TEXT)} {literal(trigger, special)}"
        else:
            text = grammar.rule(f"{ANY_TEXT} {literal(trigger)}", lazy=True)
        opened = (self.begin + self.head)[len(trigger) :]
        first = either(self._call(grammar, function, special, opened) for function in functions)
        calls = grammar.rule(f"{text} {first} {self._rest(grammar, functions, several, special)}")
        return f"{calls}{'*' if several else '?'} {grammar.terminal(ANY_TEXT)}"

    def _rest(
        self, grammar: LarkGrammar, functions: Sequence[Function], several: bool, special: Mapping[str, int]
    ) -> str:
        """What may follow the first call, and the end."""
        end = literal(self.end, special)
        if not several or self.single:
            return end
        call = grammar.rule(either(self._call(grammar, function, special) for function in functions))
        return f"({literal(self.between, special)} {call})* {end}"

    def _call(
        self, grammar: LarkGrammar, function: Function, special: Mapping[str, int], head: str | None = None
    ) -> str:
        name = literal((self.head if head is None else head) + function.name, special)
        if self.number:
            name += f" {literal(self.number)} /[0-9]+/"
        return grammar.rule(
            f"{name} {literal(self.middle, special)} {arguments(function)} {literal(self.tail, special)}"
        )


def arguments(function: Function) -> str:
    """The function's arguments and no others, written as models write JSON."""
    return json_schema(closed(function.parameters), _WRITTEN_AS_TRAINED)


def closed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that has no members but those it names, unless the schema says more of them."""
    schema = {"type": "object", **parameters}
    if "properties" in schema and not {"additionalProperties", "patternProperties", "$ref"} & schema.keys():
        schema["additionalProperties"] = False
    return schema


def json_form(
    arguments_key: str = "arguments",
    *,
    before: str = "",
    after: str = "",
    begin: str = "",
    between: str = "",
    end: str = "",
) -> CallForm:
    """Calls as JSON objects: what is around each, between them, and around all."""
    middle = f'", {json.dumps(arguments_key)}: '
    return CallForm(before + '{"name": "', middle, "}" + after, begin=begin, between=between, end=end)
