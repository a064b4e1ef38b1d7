"""Threads with a deep stack: llguidance follows rules and schemas by calling itself; a full stack ends the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

STACK_BYTES = 256 << 20
"""Address space of a stack; what is not used takes no memory."""

MOST_PARTS = 32768
"""Most rules and groups of a grammar, and members of its schemas: with llguidance 1.9 none took 6 KB of stack."""

T = TypeVar("T")

_STARTING = threading.Lock()
"""Held while a thread starts, as the size of stacks is the whole process's."""


@contextmanager
def deep_stacks() -> Iterator[None]:
    """Threads that are started meanwhile get a deep stack."""
    with _STARTING:
        usual = threading.stack_size(STACK_BYTES)
        try:
            yield
        finally:
            threading.stack_size(usual)


def call_deep(function: Callable[[], T]) -> T:
    """Call `function` in a thread of its own, and wait for what it returns or raises."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 (raised by `result`)
            future.set_exception(error)

    thread = threading.Thread(target=work, name="grammar", daemon=True)
    with deep_stacks():
        thread.start()
    return future.result()
