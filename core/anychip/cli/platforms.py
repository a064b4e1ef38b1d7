"""`anychip platforms`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from anychip.plugin.registry import FoundPlatform, Registry

NO_PLATFORMS = ("test",)
"""Extras of the distribution that bring no platform."""


def platforms(
    device: Annotated[str, typer.Option(help="Whose ops to list: NAME, or the one that would be chosen.")] = "auto",
    plugins: Annotated[
        list[str] | None, typer.Option(help="Allow-list of plugins; may be repeated.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks of broken plugins.")] = False,
) -> None:
    """Show what was found on this machine, its score, and why it can or cannot run."""
    registry = Registry(plugins)
    console = Console()
    console.print(_found(registry))
    for broken in registry.broken:
        console.print(f"Plugin {broken.name} {broken.version} is broken: {broken.reason}", markup=False)
        if verbose and broken.detail:
            console.print(broken.detail, markup=False)
    for name in _missing(registry):
        console.print(f"{name}: not installed; pip install 'anychip[{name}]'", markup=False)
    chosen = registry.choose(device)
    console.print(f"\n{chosen.found.spec.name}:{chosen.index} would run this way:", markup=False)
    console.print(_ops(f"{chosen.found.spec.name}:{chosen.index}"))


def _found(registry: Registry) -> Table:
    table = Table("platform", "plugin", "version", "devices", "score", "state")
    for found in sorted(registry.platforms, key=lambda found: -found.probe.score):
        probe = found.probe
        row = (found.spec.name, found.plugin, found.version, str(probe.devices), str(probe.score), _state(found))
        table.add_row(*row)
    return table


def _state(found: FoundPlatform) -> str:
    if found.refused:
        return f"refused: {found.refused}"
    if not found.usable:
        return f"cannot run here: {found.probe.reason or 'its probe scored 0'}"
    return "runs only by name" if found.probe.score < 0 else (found.probe.reason or "can run here")


def _missing(registry: Registry) -> Iterator[str]:
    """Platforms that the distribution has an extra for and that are not installed."""
    known = {found.plugin for found in registry.platforms} | {broken.name for broken in registry.broken}
    for name in metadata("anychip").get_all("Provides-Extra") or []:
        if name not in known and name not in NO_PLATFORMS:
            yield name


def _ops(device: str) -> Table:
    from anychip.testing.subject import Subject
    from anychip.testing.support import support

    table = Table("op", "runs as")
    with Subject(device) as subject:
        for name, state in support(subject).items():
            table.add_row(name, state)
    return table
