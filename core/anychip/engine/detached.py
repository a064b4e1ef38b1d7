"""Work in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_detached(function: Callable[[], T]) -> T:
    """Call `function` in a thread. Cancelling returns at once, and the process may end before the thread does.

    An executor's thread would hold up the end of the event loop: for hours, if it downloads a large model.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(action: Callable[[Any], None], value: object) -> None:
        if not future.done():
            action(value)

    def work() -> None:
        action: Callable[[Any], None] = future.set_result
        value: object = None
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
            action, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle, action, value)

    threading.Thread(target=work, daemon=True).start()
    return await future
