"""A bar on standard error while a model is fetched and loaded, for a person who looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anychip.progress import LoadProgress


class LoadingBar:
    """Called with (what, done, total); a bar stands only while something goes on."""

    def __init__(self) -> None:
        self._bar: LoadProgress | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far `what` is."""
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            from anychip.progress import LoadProgress

            self._bar = LoadProgress().__enter__()
        self._bar(what, done, total)
        if done >= total:
            self.stop()

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


@contextmanager
def loading_bar() -> Iterator[LoadingBar]:
    """A bar that is gone afterwards, whatever happened."""
    bar = LoadingBar()
    try:
        yield bar
    finally:
        bar.stop()
