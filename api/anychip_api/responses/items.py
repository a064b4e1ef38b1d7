"""The items of a response: what came in as chat messages, what came out as items."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from anychip.errors import RequestError
from anychip_api.blocks import Block

_ROLES = ("user", "system", "developer", "assistant")
_TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")

Item = dict[str, Any]


def input_items(given: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    """The input of a request as items with ids; raises `RequestError` for what is none."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_checked(index, item) for index, item in enumerate(given)]


def _checked(index: int, item: Mapping[str, Any]) -> Item:
    kind = item.get("type", "message" if "role" in item else None)
    checked = {"id": _new_id(kind), **item, "type": kind}
    if not isinstance(checked["id"], str):
        checked["id"] = _new_id(kind)
    match kind:
        case "message":
            if item.get("role") not in _ROLES:
                raise _wrong(index, f"has the role {item.get('role')!r}", f"Use {', '.join(_ROLES)}.")
            parts = _texts(index, item.get("content"))
            part = "output_text" if item["role"] == "assistant" else "input_text"
            checked["content"] = [{"type": part, "text": text} for text in parts]
            checked.setdefault("status", "completed")
        case "function_call":
            _need(index, item, "call_id", "name", "arguments")
        case "function_call_output":
            _need(index, item, "call_id")
            _texts(index, item.get("output"))
        case "reasoning":
            _reasoning(index, item)
        case _:
            known = "message, function_call, function_call_output and reasoning"
            raise _wrong(index, f"has the type {kind!r}", f"Items here are {known}.")
    return checked


def messages(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The conversation that checked items make: reasoning and calls belong to the assistant's message around them."""
    found: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for index, item in enumerate(items):
        match item["type"]:
            case "message" if item["role"] != "assistant":
                found.append({"role": item["role"], "content": "\n".join(_texts(index, item["content"]))})
            case "message":
                _assistant(found, content=True)["content"] = "\n".join(_texts(index, item["content"]))
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                _assistant(found).setdefault("tool_calls", []).append(call)
            case "function_call_output":
                content = "\n".join(_texts(index, item["output"]))
                found.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
            case "reasoning":
                found.append({"role": "assistant", "content": "", "reasoning_content": _reasoning(index, item)})
    return found


def _assistant(found: list[dict[str, Any]], content: bool = False) -> dict[str, Any]:
    """The assistant's message that goes on: the last one, unless it has content already and more is to come."""
    last = found[-1] if found else {}
    if last.get("role") != "assistant" or (content and (last["content"] or "tool_calls" in last)):
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _texts(index: int, content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _wrong(index, "has content that is neither text nor a list of parts", "Send text.")
    return [_part_text(index, part) for part in content]


def _part_text(index: int, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("refusal" if kind == "refusal" else "text") if kind in (*_TEXT_PARTS, "refusal") else None
    if not isinstance(text, str):
        raise _wrong(index, f"has a part of type {kind!r}", "This model reads text only: send input_text.")
    return text


def _reasoning(index: int, item: Mapping[str, Any]) -> str:
    """The text of an item of reasoning; its content is whole, its summary stands in where there is none."""
    return "\n".join(_texts(index, item.get("content") or item.get("summary") or []))


def _need(index: int, item: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(item.get(name), str):
            raise _wrong(index, f"has no {name}", "Send the item as it was in the response.")


def _wrong(index: int, what: str, remedy: str) -> RequestError:
    return RequestError(f"input[{index}] {what}.", "input", remedy)


def _new_id(kind: Any) -> str:
    prefix = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}.get(kind, "it")
    return f"{prefix}_{uuid.uuid4().hex}"


def output_item(block: Block, status: str, logprobs: list[dict[str, Any]] | None = None) -> Item:
    """A block as an item."""
    return {**_output(block, logprobs), "status": status}


def _output(block: Block, logprobs: list[dict[str, Any]] | None) -> Item:
    match block.kind:
        case "text":
            part = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": logprobs or []}
            return {"id": f"msg_{block.id}", "type": "message", "role": "assistant", "content": [part]}
        case "reasoning":
            part = {"type": "reasoning_text", "text": block.text}
            return {"id": f"rs_{block.id}", "type": "reasoning", "summary": [], "content": [part]}
        case "tool_call":
            called = {"call_id": block.call_id, "name": block.name, "arguments": block.text}
            return {"id": f"fc_{block.id}", "type": "function_call", **called}
