"""Tool calls written as JSON: {"name": ..., "arguments": {...}}, one or an array of them."""

from __future__ import annotations

import json
from collections.abc import Container

from anychip_api.parsers.json_text import copy_value, decoded, read_value
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

ARGUMENTS = ("arguments", "parameters")
NO_ARGUMENTS = "{}"


def read_calls(source: Source, sink: Sink, names: Container[str] | None = None) -> Steps[str | None]:
    """Read one call, or an array of them. None, or the text that was read where it is no call.

    `names` are the functions that may be called; None takes any.
    """
    if not (yield from source.accept("[")):
        return (yield from CallReader(source, sink, names).read())
    raw = "[" + (yield from source.space())
    rest = yield from CallReader(source, sink, names).read()
    if rest is not None:
        return raw + rest
    while True:
        yield from source.space()
        if not (yield from source.accept(",")):
            yield from source.accept("]")
            return None
        yield from source.space()
        if (yield from CallReader(source, sink, names).read()) is not None:
            return None


class CallReader:
    """Reads one object. The arguments stream if the name comes before them."""

    def __init__(self, source: Source, sink: Sink, names: Container[str] | None) -> None:
        self._source = source
        self._sink = sink
        self._names = names
        self._raw = ""
        self._named = False
        self._given = False
        self._held = NO_ARGUMENTS

    def read(self) -> Steps[str | None]:
        """None, or the text that was read where it is no call."""
        good = yield from self._read_members()
        if not self._named:
            return self._raw
        if good and not self._given:
            self._sink.arguments(self._held)
        return None

    def _read_members(self) -> Steps[bool]:
        """Whether the object was read to its end, or to that of the text."""
        if not (yield from self._accept("{")):
            return False
        while True:
            yield from self._space()
            if (yield from self._accept("}")):
                return True
            text, key = yield from read_value(self._source)
            self._raw += text
            yield from self._space()
            if not isinstance(key, str) or not (yield from self._accept(":")):
                return False
            yield from self._space()
            if not (yield from self._read_member(key)):
                return False
            yield from self._space()
            yield from self._accept(",")

    def _read_member(self, key: str) -> Steps[bool]:
        """Read a value; False for a name that nothing has."""
        if key in ARGUMENTS and self._named and not self._given:
            self._given = True
            yield from copy_arguments(self._source, self._sink)
            return True
        text, value = yield from read_value(self._source)
        self._raw += text
        if key in ARGUMENTS:
            self._held = as_object(text, value)
        elif key == "name" and not self._named:
            if not isinstance(value, str) or not value or (self._names is not None and value not in self._names):
                return False
            self._named = True
            self._sink.call(value)
        return True

    def _accept(self, mark: str) -> Steps[bool]:
        found = yield from self._source.accept(mark)
        self._raw += mark if found else ""
        return found

    def _space(self) -> Steps[None]:
        self._raw += yield from self._source.space()


def copy_arguments(source: Source, sink: Sink) -> Steps[None]:
    """Pass an object on as it stands; a string holds the object's text, and null stands for an empty one."""
    if (yield from source.peek()) == "{":
        yield from copy_value(source, sink.arguments)
        return
    raw, value = yield from read_value(source)
    sink.arguments(as_object(raw, value))


def as_object(raw: str, value: object) -> str:
    """The JSON object that a value stands for, where there is one."""
    if raw in ("", "null"):
        return NO_ARGUMENTS
    if isinstance(value, str) and isinstance(decoded(value), dict):
        return value
    return raw if value is None else json.dumps(value, ensure_ascii=False)
