"""One mechanism that makes flags of fields: a command names the groups it takes, and gets each as a dict."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from anychip.cli.fields import Field

Values = dict[str, Any]
"""The options of one group that were given, converted; what was not given is absent."""


def with_flags(**groups: Sequence[Field]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: its parameter `name` receives the given options of `groups[name]`, each a flag of its own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            arguments = {name: value for name, value in values.items() if name in own}
            for group, members in groups.items():
                arguments[group] = _collect(group, members, values)
            command(**arguments)

        own = _own_parameters(command, groups)
        made = [_parameter(group, field) for group, members in groups.items() for field in members]
        parameters = [*own.values(), *made]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del call.__wrapped__
        return call

    return decorate


def _own_parameters(command: Callable[..., None], groups: Mapping[str, object]) -> dict[str, inspect.Parameter]:
    hints = typing.get_type_hints(command, include_extras=True)
    return {
        name: parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in groups
    }


def _parameter(group: str, field: Field) -> inspect.Parameter:
    """A keyword parameter whose default None means: not given."""
    if field.is_switch:
        kind: Any = bool | None
        names = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
    else:
        kind = list[str] | None if field.is_list else str | None
        names = field.flag
    metavar = None if field.is_switch else field.metavar
    option = typer.Option(names, metavar=metavar, help=help_text(field), show_default=False)
    return inspect.Parameter(
        f"{group}_{field.name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def help_text(field: Field) -> str:
    """The field's docstring with its default and its environment variable."""
    notes = [f"default: {field.shown_default}"] if field.shown_default else []
    notes += [f"env: {field.environment}"] if field.environment else []
    repeated = " May be given several times." if field.is_list else ""
    return f"{field.text}{repeated}" + (f" [{'; '.join(notes)}]" if notes else "")


def _collect(group: str, members: Sequence[Field], values: Mapping[str, Any]) -> Values:
    given = {field: values[f"{group}_{field.name}"] for field in members}
    return {field.name: field.convert(value) for field, value in given.items() if value not in (None, [])}
