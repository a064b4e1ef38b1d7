"""Stop strings in streamed text."""

from __future__ import annotations


class StopChecker:
    """Finds the first stop string in text that arrives in pieces.

    Only a tail that may still become a stop string is held back, so text is never late because a stop is long.
    The match that is complete first wins, and of those the one that begins first: the outcome is the same however
    the text is cut into pieces. `include_stop` keeps the match in the text.
    """

    def __init__(self, stops: tuple[str, ...], include_stop: bool = False) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._include_stop = include_stop
        self._held = ""
        self._stopped: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Take a piece; return what may be shown and the stop string that was found, if any.

        After a match nothing more is shown.
        """
        if self._stopped is not None:
            return "", self._stopped
        if not self._stops:
            return text, None
        text = self._held + text
        match = self._first_match(text)
        if match is not None:
            start, self._stopped = match
            self._held = ""
            return text[: start + (len(self._stopped) if self._include_stop else 0)], self._stopped
        keep = self._partial_length(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """The text held back, at the end of an output that no stop string ended."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop

    def _partial_length(self, text: str) -> int:
        """Length of the longest tail that is a proper prefix of a stop string."""
        return max(_overlap(text, stop) for stop in self._stops)


def _overlap(text: str, stop: str) -> int:
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
