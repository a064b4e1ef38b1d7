"""gpt-oss: messages in channels. `analysis` is reasoning, `final` the answer, `commentary` calls and words before them.

<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json
<|message|>{..}<|call|>
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anychip.grammar.lark import ANY_TEXT, LarkGrammar, literal
from anychip_api.parsers.calls import NO_ARGUMENTS
from anychip_api.parsers.form import CallForm
from anychip_api.parsers.parser import OutputParser, ReasoningParser, Sink, ToolParser
from anychip_api.parsers.source import Source, Steps, Trimmed

_CHANNEL, _MESSAGE, _CONSTRAIN, _START = "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_NAMED_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


class _Harmony(OutputParser):
    markers = (_CHANNEL, _MESSAGE, _CONSTRAIN, _START, *_ENDS)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has channels."""
        return _CHANNEL in template

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """Read all messages, whatever their channel."""
        while (yield from source.peek()):
            header: list[str] = []
            if (yield from source.until([_MESSAGE], header.append)) is None:
                sink.text("".join(header))
                return
            yield from _read_body(source, sink, "".join(header))


class HarmonyReasoningParser(_Harmony, ReasoningParser):
    """Reads the whole answer: reasoning may come anywhere in it."""

    def preamble(self, grammar: LarkGrammar, special: Mapping[str, int], calls: bool) -> str:
        """Analysis if the model likes, then the header of the answer."""
        text = grammar.terminal(ANY_TEXT)
        analysis = literal(f"{_CHANNEL}analysis{_MESSAGE}", special)
        after = literal(f"<|end|>{_START}assistant", special)
        final = "" if calls else literal(f"{_CHANNEL}final{_MESSAGE}", special)
        return f"({analysis} {text} {after})? {final}"


class HarmonyToolParser(_Harmony, ToolParser):
    """Reads the whole answer; it ends behind a call."""

    form = CallForm(head=f"{_CHANNEL}commentary to=functions.", middle=f" {_CONSTRAIN}json{_MESSAGE}", single=True)


def _read_body(source: Source, sink: Sink, header: str) -> Steps[None]:
    channel, recipient = _NAMED_CHANNEL.search(header), _RECIPIENT.search(header)
    ends = (*_ENDS, _START)
    if recipient is not None:
        sink.call(recipient[1])
        written: list[str] = []

        def write(text: str) -> None:
            written.append(text)
            sink.arguments(text)

        end = yield from source.until(ends, Trimmed(write))
        if not written:
            sink.arguments(NO_ARGUMENTS)
    else:
        thinks = channel is not None and channel[1] == "analysis"
        end = yield from source.until(ends, sink.reasoning if thinks else sink.text)
    if end == _START:
        source.unread(_START)
