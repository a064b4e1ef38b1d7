"""Whether what a plugin overrides still has the signature that the core calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from anychip.errors import UserError
from anychip.log import logger

CONTRACT = ("anychip.plugin.contract", "anychip.plugin.communicator", "anychip.runner.platform")
"""Modules whose classes the core calls through."""

DEPRECATED: Mapping[str, str] = {}
"""Members that go on working for one version: `Class.member`, and what to override instead."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_members(instance: object, owner: str, deprecated: Mapping[str, str] = DEPRECATED) -> None:
    """Raise `UserError` naming `owner` and both signatures if an overridden member differs from the contract's.

    Parameters must have the contract's names, in order; further ones must have defaults. An overridden member that is
    deprecated is told of in the log, with what to override instead.
    """
    for contract, name, theirs, ours in _overridden(type(instance)):
        problem = _difference(theirs, ours)
        instead = deprecated.get(f"{contract.__name__}.{name}")
        if instead:
            logger.warning("%s overrides %s.%s, which is deprecated: %s", owner, contract.__name__, name, instead)
        if problem:
            raise UserError(
                f"{owner}: {type(instance).__name__}.{name} {problem}.",
                "Install a version of the plugin made for this anychip.",
            )


def members(contract: type) -> dict[str, Any]:
    """The public functions and properties that one class of the contract defines itself, in order."""
    found = {}
    for name, member in vars(contract).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            found[name] = member
    return found


def _overridden(kind: type) -> Iterator[tuple[type, str, Any, Any]]:
    """(class, name, implementation, contract's member) of each member of the contract that `kind` overrides."""
    for contract in kind.__mro__:
        if contract.__module__ not in CONTRACT:
            continue
        for name, ours in members(contract).items():
            home = next(each for each in kind.__mro__ if name in vars(each))
            if home.__module__ not in CONTRACT:
                yield contract, name, vars(home)[name], ours


def _difference(theirs: Any, ours: Any) -> str:
    if isinstance(ours, property):
        return "" if _is_value(theirs) else "must be a property or a value"
    if not callable(theirs):
        return "must be a method"
    given, wanted = (list(inspect.signature(each).parameters.values()) for each in (theirs, ours))
    if _matches(given, wanted):
        return ""
    return f"takes ({_show(given)}), but the contract calls it with ({_show(wanted)})"


def _is_value(member: Any) -> bool:
    return not inspect.isfunction(member)


def _matches(given: list[inspect.Parameter], wanted: list[inspect.Parameter]) -> bool:
    if len(given) < len(wanted):
        return False
    for theirs, ours in zip(given, wanted, strict=False):
        optional = theirs.default is not theirs.empty or ours.default is ours.empty
        if theirs.name != ours.name or theirs.kind not in _POSITIONAL or not optional:
            return False
    return all(extra.default is not extra.empty for extra in given[len(wanted) :])


def _show(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}=..." for parameter in parameters
    )
