"""OpenAI messages in the form that chat templates read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.errors import RequestError


def prepare_messages(
    messages: Sequence[Mapping[str, Any]], keep_parts: bool, keep_developer: bool = True
) -> list[dict[str, Any]]:
    """Copies of the messages with their content checked.

    A list of text parts becomes one text, a part a line, unless `keep_parts`; missing content becomes empty. The role
    `developer` becomes `system`, its older name, unless `keep_developer`.
    """
    prepared = [_prepare(index, message, keep_parts) for index, message in enumerate(messages)]
    if not keep_developer:
        for message in prepared:
            message["role"] = "system" if message["role"] == "developer" else message["role"]
    return prepared


def _prepare(index: int, message: Mapping[str, Any], keep_parts: bool) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}] has no role.", param="messages", remedy="Give it a `role`.")
    content = message.get("content")
    if isinstance(content, str):
        return dict(message)
    if content is None:
        return {**message, "content": ""}
    if not isinstance(content, Sequence):
        raise RequestError(f"messages[{index}].content is neither text nor a list of parts.", param="messages")
    texts = [_part_text(index, part) for part in content]
    parts = [{"type": "text", "text": text} for text in texts]
    return {**message, "content": parts if keep_parts else "\n".join(texts)}


def _part_text(index: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get(kind) if kind in ("text", "refusal") else None
    if not isinstance(text, str):
        raise RequestError(
            f"messages[{index}].content has a part of type {kind!r}; this model reads text only.",
            param="messages",
            remedy='Send parts as {"type": "text", "text": "..."}.',
        )
    return text
