"""OpenAI's messages in the form that chat templates read: tool calls and reasoning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anychip.errors import RequestError


class Arguments(dict[str, Any]):
    """A call's arguments, for templates that want an object and for those that want its text."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)


def prepare_message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose tool calls hold their arguments as objects; raises `RequestError` for what no template can show."""
    prepared = dict(message)
    if message.get("role") == "function" or message.get("function_call"):
        raise RequestError(
            f"messages[{index}] uses the deprecated function calls.", "messages", "Send tool_calls and the role tool."
        )
    if message.get("tool_calls"):
        prepared["tool_calls"] = _prepare_calls(index, message["tool_calls"])
    elif "tool_calls" in prepared:
        del prepared["tool_calls"]  # templates ask whether it is there
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        prepared["reasoning_content"] = prepared["reasoning"] = reasoning
    return prepared


def _prepare_calls(index: int, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestError(f"messages[{index}].tool_calls is not a list.", "messages")
    return [_prepare_call(f"messages[{index}].tool_calls[{place}]", call) for place, call in enumerate(calls)]


def _prepare_call(where: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} has no function with a name.", "messages", "Send the call as the model made it.")
    return {**call, "type": "function", "function": {**function, "arguments": _read(where, function.get("arguments"))}}


def _read(where: str, arguments: Any) -> Arguments:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = None
    if arguments is not None and not isinstance(arguments, Mapping):
        arguments = None
    if arguments is None:
        raise RequestError(
            f"{where}.function.arguments is no JSON object.", "messages", "Send it as the model made it."
        )
    return Arguments(arguments)
