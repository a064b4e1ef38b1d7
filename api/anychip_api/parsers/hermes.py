"""Hermes, Qwen 2.5 and 3, Granite 4: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them."""

from __future__ import annotations

from anychip_api.parsers.calls import read_calls
from anychip_api.parsers.parser import Sink, ToolParser
from anychip_api.parsers.source import Source, Steps, Trimmed

_BEGIN, _END = "<tool_call>", "</tool_call>"


def _nowhere(text: str) -> None:
    """Drops what is between a call and its end marker."""


class HermesToolParser(ToolParser):
    """`<tool_call>` around each call."""

    markers = (_BEGIN, _END)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template shows JSON between the markers."""
        return _BEGIN in template and "<arg_key>" not in template and "<function=" not in template

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        content = Trimmed(sink.text)
        while (yield from source.until([_BEGIN], content)) is not None:
            space = yield from source.space()
            rest = yield from read_calls(source, sink)
            if rest is not None:
                content(_BEGIN + space + rest)
                continue
            yield from source.until([_END], _nowhere)
            content = Trimmed(sink.text)
        if not sink.calls:
            content.flush()
