"""Progress bars for what takes long, on standard error, and only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class _Bar:
    def __init__(self, *columns: TextColumn, show: bool = True) -> None:
        self._progress: Progress | None = None
        if show and (console := Console(stderr=True)).is_terminal:
            layout = (TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn())
            self._progress = Progress(*layout, console=console, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class LoadProgress(_Bar):
    """Called with (what, done, total) while a model is fetched and loaded."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.percentage:>3.0f}%"))
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far `what` is."""
        if self._progress is None:
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)


class RequestProgress(_Bar):
    """Requests done of a batch, and the rate of tokens."""

    def __init__(self, total: int, show: bool) -> None:
        super().__init__(TextColumn("{task.completed}/{task.total}  {task.fields[rate]}"), show=show)
        if self._progress is not None:
            self._task = self._progress.add_task("requests", total=total, rate="")
        self._tokens = 0

    def begin(self, done: int) -> None:
        """Some requests were done before."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def advance(self, tokens: int, finished: bool) -> None:
        """Count new tokens, and a request that ended."""
        if self._progress is None:
            return
        self._tokens += tokens
        seconds = self._progress.tasks[0].elapsed or 0.0
        rate = f"{self._tokens / seconds:.0f} token/s" if seconds else ""
        self._progress.update(self._task, advance=int(finished), rate=rate)


class PartProgress(_Bar):
    """Parts of a long examination that are done."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.completed}/{task.total}"))
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how many are done."""
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task("checks", total=total)
            self._progress.update(self._task, completed=done, total=total)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Nothing is shown meanwhile, so that others may write to the terminal."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()
