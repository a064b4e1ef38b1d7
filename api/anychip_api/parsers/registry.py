"""Which parsers there are, and which ones a model's answers need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from anychip.errors import UserError
from anychip_api.parsers.parser import ReasoningParser, ToolParser

Kind = Literal["tool", "reasoning"]
_BASES: Mapping[Kind, type[object]] = {"tool": ToolParser, "reasoning": ReasoningParser}

_PARSERS = "anychip_api.parsers"
BUILT_IN: Mapping[tuple[str, str], str] = {
    ("tool", "hermes"): f"{_PARSERS}.hermes:HermesToolParser",
    ("reasoning", "think"): f"{_PARSERS}.think:ThinkParser",
}
"""(kind, name) -> module:Class, in the order in which chat templates are compared with them."""

ALIASES = {("tool", "qwen25"): "hermes", ("reasoning", "deepseek_r1"): "think", ("reasoning", "qwen3"): "think"}
"""Names that vLLM's users know."""


@dataclass(frozen=True, slots=True)
class Parsers:
    """The parsers of one server; None where its model's answers need none."""

    tool: type[ToolParser] | None = None
    reasoning: type[ReasoningParser] | None = None


def choose_parsers(
    tool: str | None, reasoning: str | None, template: str, plugins: Callable[[], Mapping[tuple[str, str], str]]
) -> Parsers:
    """Those that flags name, else those of ours that suit the chat template. `none` turns one off.

    `plugins` is called for a name that is not one of ours. Raises `UserError` for a name that does not exist and for a
    parser that cannot be loaded.
    """
    return Parsers(_choose("tool", tool, template, plugins), _choose("reasoning", reasoning, template, plugins))


def parser_names(kind: Kind) -> list[str]:
    """Names of ours that a flag takes."""
    return sorted(name for one, name in (*BUILT_IN, *ALIASES) if one == kind)


def _choose(
    kind: Kind,
    name: str | None,
    template: str,
    plugins: Callable[[], Mapping[tuple[str, str], str]],
) -> Any:
    if name == "none":
        return None
    if name is None:
        ours = (_load(path, kind) for (one, _), path in BUILT_IN.items() if one == kind)
        return next((parser for parser in ours if parser.suits(template)), None)
    key = kind, ALIASES.get((kind, name), name)
    path = BUILT_IN.get(key)
    if path is None:
        known = plugins()
        path = known.get(key)
        if path is None:
            listed = ", ".join([*parser_names(kind), *(one for found, one in known if found == kind)])
            raise UserError(f"There is no {kind} parser {name!r}.", f"Use none, or one of: {listed}.")
    return _load(path, kind)


def _load(path: str, kind: Kind) -> Any:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        raise UserError(f"The parser {path} cannot be loaded: {type(error).__name__}: {error}.") from error
    base = _BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"The parser {path} is no {base.__name__}.", "Derive it from that class.")
    return found
