"""Anthropic's messages, whose content is a list of blocks, as chat messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anychip.errors import RequestError

_ROLES = ("user", "assistant", "system")


def chat_messages(system: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation; raises `RequestError` for a block that no chat can hold."""
    found: list[dict[str, Any]] = [{"role": "system", "content": "\n".join(system)}] if system else []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role")
        if role not in _ROLES:
            raise _wrong(where, f"has the role {role!r}", "Use user and assistant, and `system` for a system prompt.")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
            raise _wrong(where, "has content that is neither text nor a list of blocks", "Send text.")
        found += _assistant(where, blocks) if role == "assistant" else _user(where, str(role), blocks)
    return found


def texts(where: str, content: Any) -> list[str]:
    """The texts of a string or of a list of text blocks."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _wrong(where, "is neither text nor a list of blocks", "Send text.")
    return [_text(where, block) for block in content]


def _user(where: str, role: str, blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Results of tools are messages of their own, before the rest."""
    results = [_tool_result(where, block) for block in blocks if block.get("type") == "tool_result"]
    said = [_text(where, block) for block in blocks if block.get("type") != "tool_result"]
    return [*results, *([{"role": role, "content": "\n".join(said)}] if said or not results else [])]


def _tool_result(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(block.get("tool_use_id"), str):
        raise _wrong(where, "has a tool_result without tool_use_id", "Send the id of the tool_use.")
    content = "\n".join(texts(where, block.get("content") or []))
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}


def _assistant(where: str, blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    said: list[str] = []
    for block in blocks:
        match block.get("type"):
            case "thinking" if isinstance(block.get("thinking"), str):
                message["reasoning_content"] = message.get("reasoning_content", "") + block["thinking"]
            case "redacted_thinking":
                pass
            case "tool_use":
                message.setdefault("tool_calls", []).append(_tool_use(where, block))
            case _:
                said.append(_text(where, block))
    return [{**message, "content": "\n".join(said)}]


def _tool_use(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        raise _wrong(where, "has a tool_use without id or name", "Send it as it was in the answer.")
    if not isinstance(block.get("input"), Mapping):
        raise _wrong(where, "has a tool_use whose input is no object", "Send it as it was in the answer.")
    function = {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}
    return {"id": block["id"], "type": "function", "function": function}


def _text(where: str, block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    text = block.get("text") if kind == "text" else None
    if not isinstance(text, str):
        raise _wrong(where, f"has a block of type {kind!r}", "This model reads text only.")
    return text


def _wrong(where: str, what: str, remedy: str) -> RequestError:
    return RequestError(f"{where} {what}.", where.partition("[")[0], remedy)
