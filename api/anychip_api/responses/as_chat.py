"""A request for a response in the form of a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.errors import RequestError
from anychip_api.as_chat import shared_fields
from anychip_api.responses.items import Item, messages
from anychip_api.responses.response import asks_logprobs
from anychip_api.responses.schema import ResponsesRequest

NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text",
    "verbosity": "text",
    "reasoning_effort": "reasoning",
}
"""What a chat's fields are called in a request for a response."""


def chat_fields(body: ResponsesRequest, items: Sequence[Item]) -> dict[str, Any]:
    """The chat that goes on after `items`. Raises `RequestError`."""
    if body.truncation == "auto":
        raise RequestError("truncation is not supported.", "truncation", "Shorten the input, and send disabled.")
    text = body.text
    fields = shared_fields(body) | {
        "messages": messages(body.instructions, items),
        "max_completion_tokens": body.max_output_tokens,
        "tools": [_tool(index, tool) for index, tool in enumerate(body.tools or ())] or None,
        "tool_choice": body.tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "response_format": _response_format(text.format) if text and text.format else None,
        "verbosity": text.verbosity if text else None,
        "logprobs": asks_logprobs(body) or None,
        "top_logprobs": body.top_logprobs,
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _tool(index: int, tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        message = f"tools[{index}] has the type {tool.get('type')!r}; this server runs no tools of its own."
        raise RequestError(message, "tools", "Send functions, and run them yourself.")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _response_format(form: Mapping[str, Any]) -> dict[str, Any]:
    if form.get("type") != "json_schema":
        return dict(form)
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
