"""`anychip conform NAME [test|perf|support]`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anychip.errors import UserError


class Mode(StrEnum):
    """What to do with the platform."""

    TEST = "test"
    PERF = "perf"
    SUPPORT = "support"


def conform(
    name: Annotated[str, typer.Argument(help="Device to examine, NAME or NAME:INDEX.")],
    mode: Annotated[Mode, typer.Argument(help="Run the checks, time the ops, or list which have kernels.")] = Mode.TEST,
    level: Annotated[list[int] | None, typer.Option(min=0, max=4, help="Only this level; may be repeated.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Length of the random run on level 3.")] = 1000,
    runtime: Annotated[str | None, typer.Option(help="Which of the platform's runtimes.", show_default=False)] = None,
    record: Annotated[
        Path | None, typer.Option(help="File that keeps what was seen, for a table of platforms.", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that run checks; one a processor unless it is said.")
    ] = None,
    on: Annotated[str, typer.Option(help="For --record: what this runs on, in words.", show_default=False)] = "",
) -> None:
    """Run the conformance kit on a platform; the status is 1 if a check failed."""
    from anychip.testing.conform import run
    from anychip.testing.record import Recorder

    if on and record is None:
        raise UserError("--on is for --record.", "Name the file with --record, or leave out --on.")
    recorder = Recorder(record, on) if record is not None else None
    levels = tuple(level or ())
    status = run(name, mode.value, lambda text: print(text, flush=True), levels, steps, runtime, recorder, jobs)
    if status:
        raise typer.Exit(status)
