"""`anychip bench serve`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from anychip.bench.load import Told, run
from anychip.bench.options import LoadOptions, goals
from anychip.bench.plot import check_plot, plot
from anychip.bench.summary import summary
from anychip.cli.fields import fields
from anychip.cli.flags import Values, with_flags


@with_flags(load=fields(LoadOptions))
def bench_serve(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    load: Values,
) -> None:
    """Load a server that speaks OpenAI's protocol, and measure latencies and throughput as its clients see them."""
    options = LoadOptions(**load)
    goals(options)
    if options.plot:
        check_plot()
    with progress_bar(options.requests) as told:
        model, outcomes, seconds = run(options, told)
    report = summary(options, model, outcomes, seconds)
    if options.output:
        requests = [asdict(outcome) for outcome in outcomes]
        Path(options.output).write_text(json.dumps({**report, "requests": requests}, indent=1) + "\n")
    if options.plot:
        plot(options.plot, report, outcomes)
    print(json.dumps(report) if as_json else table(report))
    if not report["completed"]:
        sys.exit(1)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    single = {name: value for name, value in report.items() if not isinstance(value, dict) and value is not None}
    lines = [f"{name:28} {value}" for name, value in single.items()]
    columns = ("mean", "p50", "p90", "p95", "p99", "max")
    lines += ["", f"{'milliseconds':12}" + "".join(f"{column:>11}" for column in columns)]
    for name, values in report.items():
        if isinstance(values, dict) and values:
            numbers = "".join(f"{values[column]:11.2f}" for column in columns)
            lines.append(f"{name.removesuffix('_ms').upper():12}{numbers}")
    return "\n".join(lines)


@contextmanager
def progress_bar(total: int) -> Iterator[Told]:
    """A bar on standard error, where somebody looks; called with the requests done and failed."""
    if not sys.stderr.isatty():
        yield lambda done, failed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=total, note="")

        def told(done: int, failed: int) -> None:
            bar.update(task, completed=done + failed, note=f"[red]{failed} failed" if failed else "")

        yield told
