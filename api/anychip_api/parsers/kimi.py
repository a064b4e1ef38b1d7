"""Kimi K2: <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>, in a section."""

from __future__ import annotations

import re

from anychip_api.parsers.calls import copy_arguments
from anychip_api.parsers.form import CallForm
from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

_BEGIN, _END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END, _ARGUMENTS = "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


class KimiToolParser(MarkedParser):
    """The text before the arguments is the call's id, and names the function."""

    markers = (_BEGIN, _END, _CALL, _CALL_END, _ARGUMENTS)
    trigger = _BEGIN
    begins = (_BEGIN, _CALL)
    ends = (_CALL_END, _END)
    dropped = (_END,)
    form = CallForm(head=f"{_CALL}functions.", number=":", middle=_ARGUMENTS, tail=_CALL_END, begin=_BEGIN, end=_END)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has the section's marker."""
        return _BEGIN in template

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read a call; the section's marker may come before its own."""
        raw = yield from source.space()
        if (yield from source.accept(_CALL)):
            raw += _CALL
        head: list[str] = []
        if (yield from source.until([_ARGUMENTS], head.append)) is None:
            return raw + "".join(head)
        call_id = "".join(head).strip()
        match = _ID.fullmatch(call_id)
        sink.call(match[1] if match else call_id, call_id)
        yield from source.space()
        yield from copy_arguments(source, sink)
        return None
