"""GLM 4.5: <tool_call>NAME, then <arg_key>NAME</arg_key><arg_value>VALUE</arg_value> an argument, </tool_call>."""

from __future__ import annotations

from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.pairs import PairedArguments
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

_BEGIN, _END = "<tool_call>", "</tool_call>"
_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"


class GlmToolParser(MarkedParser):
    """Names and values in markers of their own."""

    markers = (_BEGIN, _END, _KEY, _KEY_END, _VALUE, _VALUE_END)
    begins = (_BEGIN,)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has such markers."""
        return _KEY in template

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read a call to its end marker."""
        name: list[str] = []
        marker = yield from source.until([_KEY, _END], name.append)
        if marker is None or not "".join(name).strip():
            return "".join(name) + (marker or "")
        called = "".join(name).strip()
        sink.call(called)
        written = PairedArguments(sink, self.functions, called)
        while marker == _KEY:
            key: list[str] = []
            value: list[str] = []
            yield from source.until([_KEY_END], key.append)
            yield from source.until([_VALUE], list[str]().append)
            if (yield from source.until([_VALUE_END], value.append)) is None:
                return None
            written.add("".join(key).strip(), "".join(value))
            marker = yield from source.until([_KEY, _END], list[str]().append)
        if marker is not None:
            written.close()
        return None
