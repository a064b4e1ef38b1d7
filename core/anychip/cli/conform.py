"""`anychip conform NAME [test|perf|support]`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


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
) -> None:
    """Run the conformance kit on a platform; the status is 1 if a check failed."""
    from anychip.testing.conform import run

    status = run(name, mode.value, lambda text: print(text, flush=True), tuple(level or ()), steps, runtime)
    if status:
        raise typer.Exit(status)
