"""`anychip run-batch`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anychip.cli.fields import engine_fields
from anychip.cli.flags import Values, with_flags
from anychip.cli.loading import loading_bar
from anychip.cli.session import quiet_config
from anychip.engine.spawn import spawn_engine
from anychip.log import setup_logging

if TYPE_CHECKING:
    from anychip_api.batch.offline import BatchFile


@with_flags(engine=engine_fields())
def run_batch(
    source: Annotated[Path, typer.Option("--input", "-i", help="Requests in OpenAI's batch format, one a line.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where each result goes as it comes.")],
    workers: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 256,
    served_model_name: Annotated[
        str | None, typer.Option(help="The name that requests give the model, if not --model's.", show_default=False)
    ] = None,
    *,
    engine: Values,
) -> None:
    """Answer a file of requests. Started again after an end of any kind, it goes on with those that have no result."""
    from anychip_api.batch.offline import opened

    with opened(source, output) as batch:
        begun = len(batch.done)
        if begun:
            print(f"anychip: {begun} of {batch.total} requests have a result already.", file=sys.stderr)
        try:
            if begun < batch.total:
                asyncio.run(_run(batch, engine, workers, served_model_name))
        finally:
            print(_summary(batch), file=sys.stderr)


async def _run(batch: BatchFile, options: Values, workers: int, name: str | None) -> None:
    config = quiet_config(options)
    setup_logging(config.log_level)
    process = spawn_engine(config)  # it loads its libraries while this process does
    from anychip import AsyncEngine
    from anychip.progress import RequestProgress
    from anychip_api.options import ServerOptions

    with loading_bar() as bar:
        engine = await AsyncEngine.create(config, bar, process)
    try:
        with RequestProgress(batch.total, show=True) as progress:
            progress.begin(len(batch.done))
            await batch.run(
                engine,
                ServerOptions(served_model_name=(name,) if name else ()),
                workers,
                lambda tokens, _: progress.advance(tokens, finished=True),
            )
    finally:
        await engine.close()


def _summary(batch: BatchFile) -> str:
    left = batch.total - len(batch.done)
    failed = f", {batch.failed} of them with an error" if batch.failed else ""
    goes_on = f"; the same command goes on with the other {left}" if left else ""
    return f"anychip: {len(batch.done)} of {batch.total} requests are done{failed}{goes_on}."
