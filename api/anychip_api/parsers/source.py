"""Text that arrives in pieces, for parsers written as if it were all there.

A parser is a generator. It calls the methods here with `yield from`, and they yield while they wait for more text.
What they return depends on the text alone and never on how it was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A part of a parser: yields for more text, returns a T."""

Write = Callable[[str], None]
"""Takes text as soon as it is known to belong there."""


class Source:
    """Unread text, and whether more may come."""

    def __init__(self) -> None:
        self._text = ""
        self._closed = False

    def push(self, text: str) -> None:
        """Add a piece."""
        self._text += text

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True

    def peek(self, count: int = 1) -> Steps[str]:
        """The next `count` characters, unread; fewer at the end."""
        while len(self._text) < count and not self._closed:
            yield
        return self._text[:count]

    def take(self, count: int = 1) -> Steps[str]:
        """Read the next `count` characters; fewer at the end."""
        text = yield from self.peek(count)
        self._text = self._text[len(text) :]
        return text

    def accept(self, word: str) -> Steps[bool]:
        """Read `word` if it comes next; whether it did. Waits no longer than it takes to tell."""
        while len(self._text) < len(word) and word.startswith(self._text) and not self._closed:
            yield
        found = self._text.startswith(word)
        if found:
            self._text = self._text[len(word) :]
        return found

    def available(self) -> Steps[str]:
        """All unread text, at least one character of it; empty at the end."""
        while not self._text and not self._closed:
            yield
        text, self._text = self._text, ""
        return text

    def unread(self, text: str) -> None:
        """Put text back in front."""
        self._text = text + self._text

    def space(self) -> Steps[str]:
        """Read white space."""
        read = ""
        while (yield from self.peek()).isspace():
            rest = self._text.lstrip()
            read += self._text[: len(self._text) - len(rest)]
            self._text = rest
        return read

    def until(self, markers: Sequence[str], write: Write) -> Steps[str | None]:
        """Write the text before the first of the markers and read that one; None if none comes.

        Of markers that begin at the same place the longest counts. Only a tail that may become one is held back.
        """
        while True:
            start, marker = self._first(markers)
            if start:
                write(self._text[:start])
                self._text = self._text[start:]
            if marker is not None:
                self._text = self._text[len(marker) :]
                return marker
            if self._closed:
                return None
            yield

    def _first(self, markers: Sequence[str]) -> tuple[int, str | None]:
        """Where the first marker begins, and which it is; None where it is not complete yet, or there is none."""
        text = self._text
        best: tuple[int, int, str | None] = (len(text), 0, None)
        for marker in markers:
            start = text.find(marker)
            complete = start >= 0
            if not complete:
                start = len(text) if self._closed else len(text) - overlap(text, marker)
            best = min(best, (start, -len(marker), marker if complete else None))
        return best[0], best[2]


def overlap(text: str, marker: str) -> int:
    """Length of the longest tail of `text` that is a proper prefix of `marker`."""
    start = max(0, len(text) - len(marker) + 1)
    while start < len(text) and not marker.startswith(text[start:]):
        start += 1
    return len(text) - start


class Trimmed:
    """Writes text without the white space at its end, unless `flush` asks for that too."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._held = ""

    def __call__(self, text: str) -> None:
        """Take a piece."""
        text = self._held + text
        kept = text.rstrip()
        self._held = text[len(kept) :]
        if kept:
            self._write(kept)

    def flush(self) -> None:
        """Write the white space at the end after all."""
        if self._held:
            self._write(self._held)
        self._held = ""
