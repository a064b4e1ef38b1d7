"""Mistral: [TOOL_CALLS] and an array of calls; since v11 [TOOL_CALLS]NAME[ARGS]{...}, the marker before each call."""

from __future__ import annotations

import secrets
import string

from anychip_api.parsers.calls import copy_arguments, read_calls
from anychip_api.parsers.form import CallForm, json_form
from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

_BEGIN, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_LETTERS = string.ascii_letters + string.digits


def mistral_id() -> str:
    """Nine letters and digits, which is what Mistral's templates take."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


class MistralToolParser(MarkedParser):
    """Both ways to write calls are read; calls that have to be made are written as an array."""

    markers = (_BEGIN, _ID, _ARGUMENTS)
    trigger = _BEGIN
    begins = (_BEGIN,)
    make_id = staticmethod(mistral_id)
    form = json_form(begin=f"{_BEGIN}[", between=", ", end="]")

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has the marker and none for arguments."""
        return _BEGIN in template and _ARGUMENTS not in template

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read an array of calls, or a name and arguments."""
        space = yield from source.space()
        if (yield from source.peek()) in ("[", "{"):
            rest = yield from read_calls(source, sink)
            return None if rest is None else space + rest
        name: list[str] = []
        mark = yield from source.until([_ID, _ARGUMENTS, "{"], name.append)
        if mark is None:
            return space + "".join(name)
        given: list[str] = []
        if mark == _ID:
            mark = yield from source.until([_ARGUMENTS, "{"], given.append)
        if mark == "{":
            source.unread("{")
        sink.call("".join(name).strip(), "".join(given).strip())
        yield from source.space()
        yield from copy_arguments(source, sink)
        return None


class Mistral11ToolParser(MistralToolParser):
    """A marker, a name, a marker, arguments."""

    form = CallForm(head=_BEGIN, middle=_ARGUMENTS)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has a marker for arguments."""
        return _BEGIN in template and _ARGUMENTS in template
