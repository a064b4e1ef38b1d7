"""All commands in one typer application."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from anychip.cli.report import reported
from anychip.version import __version__

COMMANDS = {
    "serve": "Serve a model over OpenAI's protocol.",
    "run": "Ask one question, or complete a text.",
    "chat": "Talk with a model in the terminal.",
    "run-batch": "Answer a file of requests.",
    "bench": "Measure offline throughput, or a server under load.",
    "platforms": "Show what was found here, and why it can or cannot run.",
    "build-kernels": "Compile what a platform has to compile, ahead of its first use.",
    "conform": "Run the conformance kit on a platform.",
    "new-platform": "Write the package of a new platform, to begin with.",
}
"""Each command and its line in help; `anychip.cli.NAME` holds a function of that name, with _ for -."""

PARTS = {"bench": ("serve",)}
"""Commands with commands of their own, such as `bench serve`, which `anychip.cli.bench_serve` holds."""


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: only commands that are named in them are imported."""
    app = typer.Typer(
        name="anychip",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_root)
    for name, summary in COMMANDS.items():
        wanted = name in arguments
        if wanted and name in PARTS:
            app.add_typer(_group(name), name=name, help=summary)
            continue
        app.command(name, help=None if wanted else summary)(_load(name) if wanted else _unused)
    return app


def _group(name: str) -> typer.Typer:
    """A command that does something of its own, and has others below it."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(_load(name))
    for part in PARTS[name]:
        group.command(part)(_load(f"{name}_{part}"))
    return group


def _print_version(asked: bool) -> None:
    if asked:
        print(f"anychip {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """An LLM inference and serving engine for every chip."""


def _unused() -> None:
    """Stands in help for a command that was not asked for."""


def _load(name: str) -> Callable[..., None]:
    function = name.replace("-", "_")
    command: Callable[..., None] = getattr(importlib.import_module(f"anychip.cli.{function}"), function)
    return reported(command)
