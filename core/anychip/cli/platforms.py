"""`anychip platforms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from anychip.plugin.registry import FoundPlatform, Registry


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
    for line in _remarks(registry, verbose):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    chosen = registry.choose(device)
    _print_ops(console, f"{chosen.found.spec.name}:{chosen.index}")


def _found(registry: Registry) -> Table:
    table = Table("platform", "plugin", "version", "devices", "score", "state")
    for found in sorted(registry.platforms, key=lambda found: -found.probe.score):
        probe = found.probe
        devices = str(probe.devices) if found.usable else ""
        table.add_row(found.spec.name, found.plugin, found.version, devices, str(probe.score), _state(found))
    return table


def _state(found: FoundPlatform) -> str:
    if not found.usable:
        return "refused" if found.refused else "cannot run here"
    if found.probe.score < 0:
        return f"runs only by name: {found.probe.reason}".removesuffix(": ")
    return found.probe.reason or "can run here"


def _remarks(registry: Registry, verbose: bool) -> Iterator[str]:
    """What is in the way of each platform, and what to do about it."""
    for found in registry.platforms:
        if not found.usable:
            yield f"{found.spec.name} {_state(found)}: {found.obstacle}. {found.probe.remedy}".rstrip()
    for broken in registry.broken:
        yield f"Plugin {broken.name} {broken.version} is broken: {broken.reason}"
        if verbose and broken.detail:
            yield broken.detail
    yield from (extra.sentence for extra in registry.missing)


def _print_ops(console: Console, device: str) -> None:
    from anychip.testing.subject import Subject
    from anychip.testing.support import support

    console.print(f"\n{device} would run this way:", markup=False)
    table = Table("op", "runs as")
    with Subject(device) as subject:
        platform = subject.torch_platform
        for line in platform.notes() if platform is not None else ():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for name, state in support(subject).items():
            table.add_row(name, state)
    console.print(table)
