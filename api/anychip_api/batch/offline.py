"""`run_batch`: a file of requests, answered without a server. It can be killed at any time and goes on where it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from anychip import AsyncEngine
from anychip.errors import EngineDeadError, UserError
from anychip_api.app import make_service
from anychip_api.batch.lines import URLS, read_lines, scan
from anychip_api.batch.results import Result, Usage
from anychip_api.batch.running import run_lines
from anychip_api.options import ServerOptions

_SHOWN_PROBLEMS = 3

OnResult = Callable[[int, bool], None]
"""Called with (tokens generated, whether it went well) for each request that is done."""


class BatchFile:
    """The requests of one input file, and the results that its output file has already."""

    def __init__(self, source: Path, output: BinaryIO) -> None:
        found = scan(source, URLS)
        if found.problems:
            shown = " ".join(f"Line {one.line}: {one.message}" for one in found.problems[:_SHOWN_PROBLEMS])
            raise UserError(f"{source} is no batch. {shown}", "Nothing was run; correct it and start again.")
        self._source = source
        self._output = output
        self.done = _read_done(output, found.ids)
        self.total = len(found.ids)
        self.failed = 0

    async def run(self, engine: AsyncEngine, options: ServerOptions, workers: int, on_result: OnResult) -> None:
        """Answer what is left, appending each result as it comes. Raises `EngineDeadError`."""
        usage = Usage()

        def take(result: Result) -> None:
            if not result.was_run:
                raise EngineDeadError(engine.last_words)
            self._output.write(result.line())
            self.done.add(result.custom_id)
            self.failed += not result.went_well
            on_result(usage.add(result), result.went_well)

        left = (line for line in read_lines(self._source) if line.custom_id not in self.done)
        service = make_service(engine, options)
        try:
            await run_lines(service, left, min(workers, self.total), asyncio.Semaphore(workers), take)
        except* EngineDeadError as errors:
            raise EngineDeadError(str(errors.exceptions[0])) from None


@contextmanager
def opened(source: Path, output: Path) -> Iterator[BatchFile]:
    """Both files; raises `UserError` where they cannot be read or written, or another process writes the output."""
    try:
        file = output.open("a+b", buffering=0)
    except OSError as error:
        raise UserError(f"Cannot write {output}: {error.strerror}.", "Name another file with -o.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"Another process writes {output}.", "Wait for it, or name another file.") from None
        try:
            yield BatchFile(source, file)
        except OSError as error:
            raise UserError(f"Cannot read {source}: {error.strerror}.", "Name another file with -i.") from None


def _read_done(output: BinaryIO, ids: set[str]) -> set[str]:
    """The ids in an output file; cuts off a line that was not finished."""
    done: set[str] = set()
    whole = 0
    with Path(output.name).open("rb") as lines:
        for text in lines:
            if not text.endswith(b"\n"):
                break
            whole += len(text)
            done.add(_custom_id(text, ids))
    os.ftruncate(output.fileno(), whole)
    return done


def _custom_id(text: bytes, ids: set[str]) -> str:
    try:
        custom_id = msgspec.json.decode(text, type=Result).custom_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        custom_id = None
    if custom_id not in ids:
        raise UserError("The output file holds results of other requests.", "Name another file with -o.")
    return custom_id
