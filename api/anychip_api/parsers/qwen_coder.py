"""Qwen3-Coder: <tool_call><function=NAME><parameter=NAME>VALUE</parameter></function></tool_call>."""

from __future__ import annotations

from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.pairs import PairedArguments
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

_BEGIN, _END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END, _PARAMETER, _PARAMETER_END = "<function=", "</function>", "<parameter=", "</parameter>"


class QwenCoderToolParser(MarkedParser):
    """Names in the markers, values between them, each on lines of its own."""

    markers = (_BEGIN, _END)
    begins = (_FUNCTION,)
    dropped = (_BEGIN, _END)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has such markers."""
        return _FUNCTION in template and _PARAMETER in template

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read a call to its end marker."""
        name: list[str] = []
        if (yield from source.until([">"], name.append)) is None:
            return "".join(name)
        called = "".join(name).strip()
        sink.call(called)
        written = PairedArguments(sink, self.functions, called)
        marker = yield from source.until([_PARAMETER, _FUNCTION_END], list[str]().append)
        while marker == _PARAMETER:
            key: list[str] = []
            value: list[str] = []
            yield from source.until([">"], key.append)
            if (yield from source.until([_PARAMETER_END], value.append)) is None:
                return None
            written.add("".join(key).strip(), _unwrapped("".join(value)))
            marker = yield from source.until([_PARAMETER, _FUNCTION_END], list[str]().append)
        if marker is not None:
            written.close()
        return None


def _unwrapped(value: str) -> str:
    """A value without the line ends around it."""
    return value.removeprefix("\n").removesuffix("\n")
