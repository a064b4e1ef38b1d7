"""Reading JSON out of a `Source`, a value at a time, without waiting for its end."""

from __future__ import annotations

import json
import re
from typing import Any

from anychip_api.parsers.source import Source, Steps, Write

_STRUCTURE = re.compile(r'["\\{}\[\]]')
_SCALAR_END = re.compile(r"[\s,;:}\]]")


class Nesting:
    """Finds the end of an object, an array or a string in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end(self, text: str) -> int | None:
        """Index behind the value's last character, or None while it goes on; `text` follows the last call's."""
        position = 0
        if self._escaped and text:
            self._escaped, position = False, 1
        while match := _STRUCTURE.search(text, position):
            position = match.end()
            if match[0] == "\\":
                if not self._in_string:
                    continue
                if position == len(text):
                    self._escaped = True
                position += 1
            elif self._closes(match[0]):
                return position
        return None

    def _closes(self, mark: str) -> bool:
        if mark == '"':
            self._in_string = not self._in_string
            return not self._in_string and self._depth == 0
        if not self._in_string:
            self._depth += 1 if mark in "{[" else -1
        return not self._in_string and self._depth <= 0


def copy_value(source: Source, write: Write) -> Steps[None]:
    """Write one JSON value as it stands; one that never ends goes on to the end of the text."""
    if (yield from source.peek()) not in ('"', "{", "["):
        yield from _copy_scalar(source, write)
        return
    nesting = Nesting()
    while text := (yield from source.available()):
        end = nesting.end(text)
        if end is None:
            write(text)
            continue
        write(text[:end])
        source.unread(text[end:])
        return


def read_value(source: Source) -> Steps[tuple[str, Any]]:
    """One JSON value as it stands and decoded; None for what is no JSON."""
    pieces: list[str] = []
    yield from copy_value(source, pieces.append)
    raw = "".join(pieces)
    return raw, decoded(raw)


def decoded(raw: str) -> Any:
    """The value of a JSON text; None for what is no JSON."""
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _copy_scalar(source: Source, write: Write) -> Steps[None]:
    while text := (yield from source.available()):
        match = _SCALAR_END.search(text)
        if match is None:
            write(text)
            continue
        if match.start():
            write(text[: match.start()])
        source.unread(text[match.start() :])
        return
