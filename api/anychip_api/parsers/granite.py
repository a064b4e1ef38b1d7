"""Granite 3: <|tool_call|>[{"name": ..., "arguments": {...}}]; it thinks behind "Here is my thought process:"."""

from __future__ import annotations

from anychip_api.parsers.form import json_form
from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.parser import ReasoningParser, Sink
from anychip_api.parsers.source import Source, Steps, Trimmed

_BEGIN = "<|tool_call|>"
_THOUGHTS = ("Here is my thought process:", "Here's my thought process:")
_ANSWERS = ("Here is my response:", "Here's my response:")


class GraniteToolParser(MarkedParser):
    """A marker, then an array of calls."""

    markers = (_BEGIN,)
    trigger = _BEGIN
    begins = (_BEGIN, "<tool_call>")
    form = json_form(begin=f"{_BEGIN}[", between=", ", end="]")

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template names the marker, and not as Phi does, in a pair."""
        return _BEGIN in template and "<|/tool_call|>" not in template


class GraniteReasoningParser(ReasoningParser):
    """Two sentences take the place of markers."""

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template asks for the sentences."""
        return any(sentence.rstrip(":") in template for sentence in _THOUGHTS)

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        space = yield from source.space()
        for sentence in _THOUGHTS:
            if (yield from source.accept(sentence)):
                yield from source.space()
                yield from source.until(_ANSWERS, Trimmed(sink.reasoning))
                yield from source.space()
                return
        source.unread(space)
