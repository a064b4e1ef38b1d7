"""Grammars in the Lark syntax that llguidance reads, put together from parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

NO_SPECIAL: Mapping[str, int] = {}


class LarkGrammar:
    """Rules with names of their own. An expression is a string of Lark: a rule's name, a literal, a group of them."""

    def __init__(self) -> None:
        self._rules: list[str] = []

    def rule(self, body: str, lazy: bool = False) -> str:
        """A rule; `lazy` makes it a token that ends as early as it can."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """A token."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def text(self, start: str) -> str:
        """The whole grammar, which derives `start`."""
        return "\n".join(["%llguidance {}", f"start: {start}", *self._rules])


def literal(text: str, special: Mapping[str, int] = NO_SPECIAL) -> str:
    """The text itself; where it holds special tokens of the vocabulary (text -> id), those."""
    if not text:
        return '""'
    if not special:
        return json.dumps(text, ensure_ascii=False)
    pattern = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
    pieces = [piece for piece in re.split(f"({pattern})", text) if piece]
    return " ".join(f"<[{special[one]}]>" if one in special else literal(one) for one in pieces)


def regex(pattern: str) -> str:
    """A regular expression as a token's body."""
    escaped = re.sub(r"(\\.)|/", lambda match: match[1] or r"\/", pattern, flags=re.DOTALL)
    return "/" + escaped.replace("\n", r"\n") + "/"


def json_schema(schema: Any, options: Mapping[str, Any] | None = None) -> str:
    """A JSON document that fits a schema; `options` are llguidance's."""
    if options and isinstance(schema, dict):
        schema = {**schema, "x-guidance": dict(options)}
    return f"%json {json.dumps(schema, ensure_ascii=False)}"


def either(options: Iterable[str]) -> str:
    """One of several expressions."""
    return "(" + " | ".join(options) + ")"


ANY_TEXT = r"/(.|\n)*/"
"""Any text, without special tokens."""
