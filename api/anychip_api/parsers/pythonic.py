"""Llama 3.2 and 4, and others: calls as a list in Python, [weather(city="Paris"), add(a=1, b=2)]."""

from __future__ import annotations

import ast
import json
from collections.abc import Container

from anychip_api.parsers.parser import Sink, ToolParser
from anychip_api.parsers.source import Source, Steps

_START, _END = "<|python_start|>", "<|python_end|>"
_OPENS, _CLOSES = "([{", ")]}"


class PythonicToolParser(ToolParser):
    """An answer that begins with a list whose first element calls a known function is calls."""

    markers = (_START, _END)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template asks for such a list."""
        return "[func_name1(" in template or _START in template

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        names = {function.name for function in self.functions}
        before = yield from source.space()
        if (yield from source.accept(_START)):
            before += _START + (yield from source.space())
        if (yield from source.accept("[")):
            before += "["
            while (rest := (yield from _read_call(source, sink, names))) is None:
                yield from source.space()
                if not (yield from source.accept(",")):
                    yield from source.accept("]")
                    yield from source.accept(_END)
                    return
            before += rest
        if not sink.calls:
            sink.text(before)


def _read_call(source: Source, sink: Sink, names: Container[str]) -> Steps[str | None]:
    """Read one call. None, or the text that was read where it is none."""
    raw = yield from source.space()
    name = ""
    while (character := (yield from source.peek())).isalnum() or character in ("_", ".", "-"):
        name += yield from source.take()
    raw += name
    if name not in names or character != "(":
        return raw
    written = yield from _read_parentheses(source)
    arguments = _as_json(written)
    if arguments is None:
        return raw + written
    sink.call(name)
    sink.arguments(arguments)
    return None


def _read_parentheses(source: Source) -> Steps[str]:
    """Text up to the parenthesis that closes the first one."""
    text, depth, quote = "", 0, ""
    while character := (yield from source.take()):
        text += character
        if quote:
            if character == "\\":
                text += yield from source.take()
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        else:
            depth += (character in _OPENS) - (character in _CLOSES)
            if depth == 0:
                break
    return text


def _as_json(written: str) -> str | None:
    """The keyword arguments of a call as a JSON object; None for what is no such call."""
    try:
        call = ast.parse(f"call{written}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(one.arg is None for one in call.keywords):
            return None
        values = {one.arg: _value(one.value) for one in call.keywords}
        return json.dumps(values, ensure_ascii=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> object:
    """A literal; models also write JSON's."""
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[node.id]
    return ast.literal_eval(node)
