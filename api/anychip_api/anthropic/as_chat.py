"""A request for a message in the form of a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.errors import RequestError
from anychip_api.anthropic.content import chat_messages, texts
from anychip_api.anthropic.schema import ConversationRequest, MessagesRequest, ToolChoice
from anychip_api.as_chat import shared_fields

NAMES = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config",
    "reasoning_effort": "output_config",
    "parallel_tool_calls": "tool_choice",
    "continue_final_message": "messages",
}
"""What a chat's fields are called in a request for a message."""

_MODES = {"auto": "auto", "any": "required", "none": "none"}


def chat_fields(body: ConversationRequest) -> dict[str, Any]:
    """The chat that a request asks for. Raises `RequestError`."""
    fields: dict[str, Any] = {
        "messages": chat_messages(texts("system", body.system or []), body.messages),
        "tools": [_tool(index, tool) for index, tool in enumerate(body.tools or ())] or None,
        "chat_template_kwargs": _template_variables(body),
        "continue_final_message": _continues(body.messages) or None,
        **(_tool_choice(body.tool_choice) if body.tool_choice else {}),
        **(_sampling(body) if isinstance(body, MessagesRequest) else {}),
    }
    if body.output_config is not None:
        fields["reasoning_effort"] = body.output_config.effort
        fields["response_format"] = _response_format(body.output_config.format)
    return {name: value for name, value in fields.items() if value is not None}


def _sampling(body: MessagesRequest) -> dict[str, Any]:
    stop = body.stop_sequences or body.stop
    return shared_fields(body) | {"max_completion_tokens": body.max_tokens, "stop": stop}


def _continues(messages: Sequence[Mapping[str, Any]]) -> bool:
    """A last message of the assistant is the beginning of the answer, unless it holds calls."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    calls = isinstance(content, list) and any(
        isinstance(one, Mapping) and one.get("type") == "tool_use" for one in content
    )
    return last.get("role") == "assistant" and not calls


def _template_variables(body: ConversationRequest) -> dict[str, Any] | None:
    """Chat templates know thinking by one of two names."""
    if body.thinking is None:
        return body.chat_template_kwargs
    thinks = body.thinking.type != "disabled"
    return {"enable_thinking": thinks, "thinking": thinks, **(body.chat_template_kwargs or {})}


def _tool(index: int, tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type", "custom") not in ("custom", None):
        message = f"tools[{index}] has the type {tool['type']!r}; this server runs no tools of its own."
        raise RequestError(message, "tools", "Send tools with an input_schema, and run them yourself.")
    function = {"name": tool.get("name"), "parameters": tool.get("input_schema")}
    optional = {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function | optional}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    fields: dict[str, Any] = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    if choice.type == "tool":
        return fields | {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    return fields | {"tool_choice": _MODES[choice.type]}


def _response_format(form: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.get("type") != "json_schema":
        message = f"output_config.format has the type {form.get('type')!r}."
        raise RequestError(message, "output_config", "Send json_schema with a schema.")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": form.get("schema"), "strict": True}}
