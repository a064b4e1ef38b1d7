"""The fields of a config struct as a person meets them: as flags, in help, in the docs."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec

from anychip.config import ENV_PREFIX, FIELDS, EngineConfig
from anychip.errors import UserError


@dataclass(frozen=True, slots=True)
class Field:
    """One option. `environment` is the variable that sets it too, empty for none; `text` its docstring."""

    name: str
    hint: Any
    default: Any
    text: str
    environment: str = ""

    @property
    def flag(self) -> str:
        """Its flag, without the `--no-` of a switch."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Whether it is either on or off."""
        return self.hint is bool

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times."""
        return any(typing.get_origin(arm) is tuple for arm in _arms(self.hint))

    @property
    def metavar(self) -> str:
        """What stands for its value in help."""
        arm = _arms(self.hint)[0]
        if typing.get_origin(arm) is Literal:
            return "|".join(typing.get_args(arm))
        kind = typing.get_args(arm)[0] if typing.get_origin(arm) is Annotated else arm
        return {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")

    @property
    def shown_default(self) -> str:
        """Its default in help; empty where the docstring says what happens."""
        if self.default is None or self.default == ():
            return ""
        if self.is_switch:
            return "on" if self.default else "off"
        return " ".join(self.default) if self.is_list else str(self.default)

    def convert(self, value: Any) -> Any:
        """A value from the command line. Raises `UserError` naming the flag and what it takes."""
        try:
            return msgspec.convert(value, self.hint, strict=False)
        except msgspec.ValidationError:
            given = " ".join(value) if isinstance(value, list | tuple) else value
            raise UserError(f"{self.flag} takes {self._takes()}, not {given!r}.", "See --help.") from None

    def _takes(self) -> str:
        arm = _arms(self.hint)[0]
        if typing.get_origin(arm) is Literal:
            *rest, last = typing.get_args(arm)
            return f"{', '.join(rest)} or {last}"
        if self.is_list:
            arm = typing.get_args(arm)[0]
        kind, *limits = typing.get_args(arm) if typing.get_origin(arm) is Annotated else (arm,)
        noun = {int: "an integer", float: "a number"}.get(kind, "text")
        words = [noun, *(_range(meta) for meta in limits)]
        return " ".join(words)


def fields(
    struct: type[msgspec.Struct], environment_prefix: str = "", only: typing.Container[str] | None = None
) -> list[Field]:
    """The fields of `struct` in order; `only` limits them to some names."""
    hints = typing.get_type_hints(struct, include_extras=True)
    texts = dict(_docstrings(struct))
    return [
        Field(
            name=info.name,
            hint=hints[info.name],
            default=info.default,
            text=texts.get(info.name, ""),
            environment=environment_prefix + info.name.upper() if environment_prefix else "",
        )
        for info in msgspec.structs.fields(struct)
        if only is None or info.name in only
    ]


def engine_fields() -> list[Field]:
    """Every option of `EngineConfig`."""
    return fields(EngineConfig, ENV_PREFIX, FIELDS)


def server_fields() -> list[Field]:
    """Every option of the HTTP server."""
    from anychip_api.options import ServerOptions

    return fields(ServerOptions)


def _arms(hint: Any) -> list[Any]:
    """The members of a union but None, or the hint itself."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return [arm for arm in typing.get_args(hint) if arm is not types.NoneType]
    return [hint]


def _range(meta: msgspec.Meta) -> str:
    if meta.min_length:
        return "that is not empty"
    bounds = (("of at least", meta.ge), ("above", meta.gt), ("of at most", meta.le), ("below", meta.lt))
    return " and ".join(f"{word} {limit:g}" for word, limit in bounds if limit is not None)


def _docstrings(struct: type) -> Iterator[tuple[str, str]]:
    """(field, the string below it) in a class's source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    assert isinstance(tree.body[0], ast.ClassDef), "this is the source of a class"
    body = tree.body[0].body
    for statement, below in pairwise(body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
