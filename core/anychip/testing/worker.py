"""A process that runs parts of checks, asked for over a socket. It ends when the socket is closed."""

from __future__ import annotations

import faulthandler
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from anychip.testing.check import Outcome, parts_of, run_part
from anychip.testing.subject import Subject


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is for."""

    device: str
    runtime: str | None
    steps: int
    threads: int
    """Of the host, for what is computed here."""


@dataclass(frozen=True, slots=True)
class Task:
    """One part of one check, by names that mean the same in every process."""

    label: str
    index: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task, and whether the device can be used on."""

    outcome: Outcome
    usable: bool


def serve(connection: Connection) -> None:
    """Open the device, say so with an empty message or else why not, and run what is asked for."""
    order: Order = connection.recv()
    import torch

    torch.set_num_threads(order.threads)
    with Subject(order.device, order.steps, order.runtime) as subject:
        try:
            _ = subject.platform
        except Exception as error:  # noqa: BLE001 (told to who asked for it)
            connection.send(f"{type(error).__name__}: {error}")
            return
        connection.send("")
        while True:
            try:
                task: Task = connection.recv()
            except EOFError:
                return
            connection.send(_answer(task, subject))


def _answer(task: Task, subject: Subject) -> Answer:
    from anychip.testing.checks import CHECKS

    check = next(check for check in CHECKS if check.label == task.label)
    outcome = run_part(parts_of(check, subject)[task.index], subject)
    return Answer(outcome, outcome.status != "failed" or _usable(subject))


def _usable(subject: Subject) -> bool:
    """Whether something still comes back from the device: after some faults nothing does, in this process."""
    import torch

    platform = subject.torch_platform
    if platform is None:
        return True
    try:
        platform.synchronize()
        return bool(platform.fetch(torch.ones(1, device=platform.device)).result()[0] == 1)
    except Exception:  # noqa: BLE001 (whatever it is)
        return False


def main() -> None:
    """One process, whose argument is the number of the socket."""
    faulthandler.enable()
    serve(Connection(int(sys.argv[1])))
