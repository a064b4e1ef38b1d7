"""DeepSeek V3 and R1: calls between markers, the arguments in a fenced block; V3.1: name, marker, arguments."""

from __future__ import annotations

from anychip_api.parsers.calls import copy_arguments
from anychip_api.parsers.form import CallForm
from anychip_api.parsers.marked import MarkedParser
from anychip_api.parsers.parser import Sink
from anychip_api.parsers.source import Source, Steps

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001 -- the tokens are written so
_CALL, _CALL_END, _AFTER_NAME = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"  # noqa: RUF001
_FENCE = "```json"


class DeepSeekToolParser(MarkedParser):
    """V3's calls begin with their type, V3.1's with their name."""

    markers = (_BEGIN, _END, _CALL, _CALL_END, _AFTER_NAME)
    trigger = _BEGIN
    begins = (_BEGIN, _CALL)
    ends = (_CALL_END, _END)
    dropped = (_END,)
    form = CallForm(
        head=f"{_CALL}function{_AFTER_NAME}",
        middle=f"\n{_FENCE}\n",
        tail=f"\n```{_CALL_END}",
        begin=_BEGIN,
        between="\n",
        end=_END,
    )

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has the markers and the fence."""
        return _CALL in template and _FENCE in template

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read a call; the marker of the whole list may come before its own."""
        raw = yield from source.space()
        if (yield from source.accept(_CALL)):
            raw += _CALL
        name: list[str] = []
        if (yield from source.until([_AFTER_NAME], name.append)) is None:
            return raw + "".join(name)
        if "".join(name) == "function":
            name = []
            yield from source.until(["\n"], name.append)
            yield from source.space()
            yield from source.accept(_FENCE)
            yield from source.space()
        sink.call("".join(name).strip())
        yield from copy_arguments(source, sink)
        return None


class DeepSeek31ToolParser(DeepSeekToolParser):
    """The same markers, without a type and a fence."""

    form = CallForm(head=_CALL, middle=_AFTER_NAME, tail=_CALL_END, begin=_BEGIN, end=_END)

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template has the markers and no fence."""
        return _CALL in template and _FENCE not in template
