"""Checks of the kit in several processes, with one report: a process that ends fails the part it had, and no other."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from anychip.config import worker_environment
from anychip.errors import UserError
from anychip.testing.check import Check, Outcome, Result, joined, parts_of
from anychip.testing.subject import Subject
from anychip.testing.worker import Answer, Order, Task

COMMAND = "from anychip.testing.worker import main; main()"
END_SECONDS = 60.0
"""For a process to give back what it opened."""

Progress = Callable[[int, int], None]
"""Called with parts done, and all of them."""


class RefusedError(UserError):
    """No process can open the device beside this one."""


class Worker:
    """One process, and the tasks of one home that it has still to do, the first of which it is at."""

    def __init__(self, order: Order, folder: Path) -> None:
        self.tasks: deque[Task] = deque()
        self.ready = False
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=worker_environment(folder),
                process_group=0,  # Ctrl-C is this process's affair
            )
        self.connection = Connection(ours.detach())
        self.connection.send(order)

    def begin(self) -> None:
        """Ask for the first task."""
        if self.ready and self.tasks:
            with contextlib.suppress(OSError):  # that it has ended is read from the connection
                self.connection.send(self.tasks[0])

    def end(self) -> str:
        """Close the connection and wait; how the process ended, in words."""
        self.connection.close()
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        self.kill()  # what it has started and left
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def kill(self) -> None:
        """End it and what it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()


@dataclass
class _Round:
    """Checks under way."""

    checks: Sequence[Check]
    parts: dict[str, int]
    """How many each has."""
    homes: deque[deque[Task]]
    """Those that nobody has taken yet."""
    outcomes: dict[Task, Outcome] = field(default_factory=dict)

    def results(self) -> Iterator[Result]:
        """Of the first checks, as far as all of their parts are done; each comes once."""
        while self.checks:
            check, *rest = self.checks
            tasks = [Task(check.label, index) for index in range(self.parts[check.label])]
            if not all(task in self.outcomes for task in tasks):
                return
            self.checks = rest
            yield joined(check, [self.outcomes[task] for task in tasks])


class Workers:
    """Up to `most` processes for one platform. Use it in a `with`: whatever happens, none is left behind."""

    def __init__(self, subject: Subject, most: int, threads: int, progress: Progress) -> None:
        self._subject, self._progress = subject, progress
        self._order = Order(subject.device, subject.runtime, subject.steps, threads)
        self._most = most
        self._folder = tempfile.TemporaryDirectory(prefix="anychip-conform-", ignore_cleanup_errors=True)
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            if error is None:
                worker.connection.close()
            else:
                worker.kill()
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def results(self, checks: Sequence[Check], most: int | None = None) -> Iterator[Result]:
        """What came of each check, in their order. Raises `RefusedError`."""
        homes: dict[str, deque[Task]] = {}
        parts = {check.label: parts_of(check, self._subject) for check in checks}
        for check in sorted(checks, key=lambda check: -check.level):  # the longest parts are those of the last levels
            for index, part in enumerate(parts[check.label]):
                homes.setdefault(part.home, deque()).append(Task(check.label, index))
        counts = {label: len(each) for label, each in parts.items()}
        under_way, total = _Round(checks, counts, deque(homes.values())), sum(counts.values())
        while len(under_way.outcomes) < total:
            self._hand_out(under_way, min(self._most, most or self._most))
            for worker in self._heard():
                self._take(worker, under_way)
            self._progress(len(under_way.outcomes), total)
            yield from under_way.results()

    def _hand_out(self, under_way: _Round, most: int) -> None:
        for place in range(most):
            if not under_way.homes:
                return
            if place == len(self._workers):
                self._workers.append(Worker(self._order, Path(self._folder.name)))
            worker = self._workers[place]
            if not worker.tasks:
                worker.tasks = under_way.homes.popleft()
                worker.begin()

    def _heard(self) -> list[Worker]:
        said = wait([worker.connection for worker in self._workers if worker.tasks])
        return [worker for worker in self._workers if worker.connection in said]

    def _take(self, worker: Worker, under_way: _Round) -> None:
        """One message of a worker, or its end."""
        try:
            message: str | Answer = worker.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._lost(worker, under_way)
        if isinstance(message, str):
            if message:
                return self._refused(worker, message, under_way)
            worker.ready = True
            return worker.begin()
        if message.usable:
            under_way.outcomes[worker.tasks.popleft()] = message.outcome
            return worker.begin()
        return self._failed(worker, message.outcome, under_way)

    def _lost(self, worker: Worker, under_way: _Round) -> None:
        how = worker.end()
        if not worker.ready:
            return self._refused(worker, f"its process {how}", under_way)
        return self._failed(worker, Outcome("failed", problems=(f"the process of this check {how}",)), under_way)

    def _failed(self, worker: Worker, outcome: Outcome, under_way: _Round) -> None:
        """A check has cost a process: what nobody has begun of it is left out, as each part may cost one more."""
        task = worker.tasks.popleft()
        under_way.outcomes[task] = outcome
        self._replace(worker, under_way)
        begun = {other.tasks[0] for other in self._workers if other.tasks}
        for tasks in (*under_way.homes, *(other.tasks for other in self._workers)):
            for left in [each for each in tasks if each.label == task.label and each not in begun]:
                tasks.remove(left)
                under_way.outcomes[left] = Outcome("not applicable", problems=("left out",))
        under_way.homes = deque(filter(None, under_way.homes))

    def _replace(self, worker: Worker, under_way: _Round) -> None:
        """What it has not done is for another process."""
        self._workers.remove(worker)
        worker.kill()
        if worker.tasks:
            under_way.homes.appendleft(worker.tasks)

    def _refused(self, worker: Worker, reason: str, under_way: _Round) -> None:
        """Go on with one process less."""
        self._replace(worker, under_way)
        self._most = min(self._most, len(self._workers))
        if not self._most:
            raise RefusedError(f"No other process can open {self._order.device}: {reason}.", "Say `--jobs 1`.")
