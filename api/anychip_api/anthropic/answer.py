"""A message as it comes: Anthropic's events, or the object when all is there."""

from __future__ import annotations

import json
from typing import Any

from anychip_api.as_chat import BlocksAnswer
from anychip_api.blocks import Block, Change, Closed, Gained, Opened
from anychip_api.errors import ANTHROPIC, ApiError
from anychip_api.event_stream import event

_STOPS = {"length": "max_tokens", "tool_calls": "tool_use"}
_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}


class MessageAnswer(BlocksAnswer):
    """Formats one message."""

    def whole(self) -> dict[str, Any]:
        """The message at its end."""
        return self._message([_content(block) for block in self.blocks.list]) | self._stop()

    def opening(self) -> bytes:
        """The message without content."""
        return _event("message_start", message=self._message([]))

    def closing(self) -> bytes:
        """Why it ended, and the usage."""
        stop = self._stop()
        return _event("message_delta", delta=stop, usage=self._usage()) + _event("message_stop")

    def failure(self, error: ApiError) -> bytes:
        """The error as it is without a stream."""
        return event(error.body(ANTHROPIC), "error")

    def change(self, change: Change) -> bytes:
        """One event."""
        index = change.block.number
        match change:
            case Opened(block):
                return _event("content_block_start", index=index, content_block=_empty(block))
            case Gained(block, text):
                kind, name = _DELTAS[block.kind]
                return _event("content_block_delta", index=index, delta={"type": kind, name: text})
            case Closed():
                return _event("content_block_stop", index=index)

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.head.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _stop(self) -> dict[str, Any]:
        blocks = self.blocks
        if blocks.finish_reason == "stop" and any(block.kind == "tool_call" for block in blocks.list):
            return {"stop_reason": "tool_use", "stop_sequence": None}  # of a tool that was asked for by name
        if blocks.finish_reason == "stop" and isinstance(blocks.stop_reason, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": blocks.stop_reason}
        return {"stop_reason": _STOPS.get(blocks.finish_reason or "", "end_turn"), "stop_sequence": None}

    def _usage(self) -> dict[str, int]:
        """Tokens that were read from the cache count apart."""
        usage = self.generation.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }


def _content(block: Block) -> dict[str, Any]:
    match block.kind:
        case "text":
            return _empty(block) | {"text": block.text}
        case "reasoning":
            return _empty(block) | {"thinking": block.text}
        case "tool_call":
            return _empty(block) | {"input": _object(block.text)}


def _empty(block: Block) -> dict[str, Any]:
    match block.kind:
        case "text":
            return {"type": "text", "text": "", "citations": None}
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_call":
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _object(arguments: str) -> Any:
    """A call's arguments; one that was cut off by the limit has none that can be read."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _event(name: str, /, **fields: Any) -> bytes:
    return event({"type": name, **fields}, name)
