"""Families that put a marker before their calls: content, then a marker, then calls, then perhaps more content."""

from __future__ import annotations

from typing import ClassVar

from anychip_api.parsers.calls import read_calls
from anychip_api.parsers.parser import Sink, ToolParser
from anychip_api.parsers.source import Source, Steps, Trimmed


class MarkedParser(ToolParser):
    """By default a call, or an array of them, is JSON."""

    begins: ClassVar[tuple[str, ...]]
    """Markers that begin a call, or several."""
    ends: ClassVar[tuple[str, ...]] = ()
    """Markers that end it; text before them is dropped."""
    dropped: ClassVar[tuple[str, ...]] = ()
    """Markers between and behind calls that mean nothing."""

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        content = Trimmed(sink.text)
        while (marker := (yield from source.until((*self.begins, *self.dropped), content))) is not None:
            if marker in self.dropped:
                continue
            rest = yield from self.read_marked(source, sink)
            if rest is not None:
                content(marker + rest)
                continue
            if self.ends:
                last = yield from source.until((*self.ends, *self.begins), _nowhere)
                source.unread(last if last is not None and last in self.begins else "")
            content = Trimmed(sink.text)
        if not sink.calls:
            content.flush()

    def read_marked(self, source: Source, sink: Sink) -> Steps[str | None]:
        """Read what follows a marker. None, or the text that was read where it is no call."""
        space = yield from source.space()
        rest = yield from read_calls(source, sink)
        return None if rest is None else space + rest


def _nowhere(text: str) -> None:
    """Drop what is between a call and its end marker."""
