"""Llama 3: calls as JSON objects with `parameters`, with `;` between them, perhaps behind <|python_tag|>."""

from __future__ import annotations

from anychip_api.parsers.calls import read_calls
from anychip_api.parsers.form import json_form
from anychip_api.parsers.parser import Sink, ToolParser
from anychip_api.parsers.source import Source, Steps

_TAG = "<|python_tag|>"


class LlamaToolParser(ToolParser):
    """An answer that begins with the call of a known function is calls; any other is content."""

    markers = (_TAG,)
    form = json_form("parameters", between="; ")

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template asks for JSON with `parameters`."""
        return '"parameters": ' in template and "<|eot_id|>" in template

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        names = {function.name for function in self.functions}
        before = yield from source.space()
        if (yield from source.accept(_TAG)):
            before += _TAG + (yield from source.space())
        while True:
            rest = yield from read_calls(source, sink, names)
            if rest is not None:
                if not sink.calls:
                    sink.text(before + rest)
                return
            yield from source.space()
            yield from source.accept(";")
            yield from source.space()
            yield from source.accept(_TAG)
            if (yield from source.peek()) not in ("{", "["):
                return
