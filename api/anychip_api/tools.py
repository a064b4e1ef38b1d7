"""The `tools` and `tool_choice` of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from anychip.errors import RequestError
from anychip_api.parsers.parser import Function

_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,128}")
_CHOICES = 'Send "none", "auto", "required", or {"type": "function", "function": {"name": "..."}}.'

Mode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True)
class Tools:
    """What the model may call. `definitions` are the client's own objects, for the chat template."""

    functions: tuple[Function, ...] = ()
    definitions: tuple[dict[str, Any], ...] = ()
    mode: Mode = "none"
    named: bool = False
    """The request names the one function that must be called."""
    parallel: bool = True


def read_tools(tools: Sequence[Mapping[str, Any]] | None, choice: Any, parallel: bool | None) -> Tools:
    """The checked tools of a request; raises `RequestError` for what is no tool or no choice among them."""
    given = [_read_function(index, tool) for index, tool in enumerate(tools or ())]
    names = [function.name for function in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"tools has two functions named {twice!r}.", "tools", "Give each a name of its own.")
    all_tools = Tools(tuple(given), tuple(dict(tool) for tool in tools or ()), parallel=parallel is not False)
    return _choose(all_tools, choice)


def _choose(tools: Tools, choice: Any) -> Tools:
    if choice is None or choice == "auto":
        return replace(tools, mode="auto" if tools.functions else "none")
    if choice == "none":
        return tools
    if choice == "required":
        if not tools.functions:
            raise RequestError('tool_choice is "required", but there are no tools.', "tool_choice", "Send tools.")
        return replace(tools, mode="required")
    if isinstance(choice, Mapping):
        return _choose_by_object(tools, choice)
    raise RequestError(f"tool_choice {choice!r} is not known.", "tool_choice", _CHOICES)


def _choose_by_object(tools: Tools, choice: Mapping[str, Any]) -> Tools:
    kind = choice.get("type")
    if kind == "function":
        return replace(_only(tools, [_named(choice)]), mode="required", named=True, parallel=False)
    allowed = choice.get("allowed_tools", choice)
    if kind == "allowed_tools" and isinstance(allowed, Mapping) and isinstance(allowed.get("tools"), list):
        return _choose(_only(tools, [_named(one) for one in allowed["tools"]]), allowed.get("mode", "auto"))
    raise RequestError(f"tool_choice of type {kind!r} is not known.", "tool_choice", _CHOICES)


def _named(choice: Any) -> str:
    """Chat nests the name in `function`, the Responses API does not."""
    function = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise RequestError("tool_choice names no function.", "tool_choice", _CHOICES)
    return name


def _only(tools: Tools, names: Sequence[str]) -> Tools:
    known = {function.name for function in tools.functions}
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise RequestError(f"tool_choice names {name!r}; the tools are: {listed}.", "tool_choice", _CHOICES)
    kept = [index for index, function in enumerate(tools.functions) if function.name in names]
    return replace(
        tools,
        functions=tuple(tools.functions[index] for index in kept),
        definitions=tuple(tools.definitions[index] for index in kept),
    )


def _read_function(index: int, tool: Mapping[str, Any]) -> Function:
    where = f"tools[{index}]"
    if tool.get("type") != "function":
        raise RequestError(f"{where} has the type {tool.get('type')!r}.", "tools", 'Only "function" is supported.')
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(f"{where}.function is not an object.", "tools", "Give it a name and parameters.")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{where}.function.name {name!r} is no function name.", "tools", "Use letters, digits, _ and -."
        )
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(f"{where}.function.parameters is not an object.", "tools", "Send a JSON schema.")
    schema = dict(parameters) if parameters else {"type": "object", "properties": {}}
    return Function(name, schema, strict=function.get("strict") is True)
