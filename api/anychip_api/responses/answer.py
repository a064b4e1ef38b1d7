"""A response as it comes: OpenAI's typed events, or the object when all is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from anychip_api.answer import Head
from anychip_api.as_chat import BlocksAnswer
from anychip_api.blocks import Block, Change, Closed, Gained, Opened
from anychip_api.errors import ApiError
from anychip_api.event_stream import event
from anychip_api.generation import Generation
from anychip_api.logprobs import chat_rows
from anychip_api.reader import Reading
from anychip_api.responses.items import output_item
from anychip_api.responses.response import Opening, usage
from anychip_api.service import Service

OnEnd = Callable[[dict[str, Any]], None]
"""Called with the response once it is complete."""


class ResponseAnswer(BlocksAnswer):
    """Formats one response; `on_end` may keep it."""

    def __init__(
        self, service: Service, generation: Generation, reading: Reading, opening: Opening, on_end: OnEnd
    ) -> None:
        stream = bool(opening.request.stream)
        super().__init__(generation, Head(opening.id, opening.model), stream, reading)
        self._texts = service.token_texts
        self._opening = opening
        self._on_end = on_end
        self._sequence = 0

    def so_far(self, status: str = "in_progress") -> dict[str, Any]:
        """The response with what there is of it."""
        return self._opening.shown(status, [self._item(block, "in_progress") for block in self.blocks.list])

    def whole(self) -> dict[str, Any]:
        """The response at its end."""
        cut = self.blocks.finish_reason == "length"
        output = [self._item(block, "completed") for block in self.blocks.list]
        if cut:
            output[-1]["status"] = "incomplete"
        ending: dict[str, Any] = {"usage": usage(self.generation.usage(), self.blocks.reasoning_tokens)}
        if cut:
            ending["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            ending["completed_at"] = int(time.time())
        response = self._opening.shown("incomplete" if cut else "completed", output, **ending)
        self._on_end(response)
        return response

    def opening(self) -> bytes:
        """Two events without output."""
        return self._event("response.created", response=self.so_far()) + self._event(
            "response.in_progress", response=self.so_far()
        )

    def closing(self) -> bytes:
        """The whole response once more."""
        response = self.whole()
        return self._event(f"response.{response['status']}", response=response)

    def failure(self, error: ApiError) -> bytes:
        """The response with its error."""
        code = "rate_limit_exceeded" if error.code == "queue_full" else "server_error"
        failed = self.so_far("failed") | {"error": {"code": code, "message": error.message}}
        self._on_end(failed)
        return self._event("response.failed", response=failed)

    def change(self, change: Change) -> bytes:
        """The events that OpenAI sends for it, in its order."""
        match change:
            case Opened(block):
                return self._opened(block)
            case Gained(block, text, tokens):
                return self._gained(block, text, tokens)
            case Closed(block):
                return self._closed(block)

    def _opened(self, block: Block) -> bytes:
        item = self._item(block, "in_progress")
        if block.kind == "tool_call":
            return self._event("response.output_item.added", output_index=block.number, item=item)
        (part,) = item["content"]
        added = self._event("response.output_item.added", output_index=block.number, item={**item, "content": []})
        return added + self._in_part(block, "response.content_part.added", item["id"], {"part": part})

    def _gained(self, block: Block, text: str, tokens: int) -> bytes:
        item_id = self._item(block, "in_progress")["id"]
        match block.kind:
            case "text":
                rows = self._rows(block, len(block.token_ids) - tokens)
                return self._in_part(block, "response.output_text.delta", item_id, {"delta": text, "logprobs": rows})
            case "reasoning":
                return self._in_part(block, "response.reasoning_text.delta", item_id, {"delta": text})
            case "tool_call":
                where = {"output_index": block.number, "item_id": item_id}
                return self._event("response.function_call_arguments.delta", **where, delta=text)

    def _closed(self, block: Block) -> bytes:
        cut = self.blocks.finish_reason == "length"  # then this is the last one, and what was cut
        item = self._item(block, "incomplete" if cut else "completed")
        said = self._said(block, item)
        return said + self._event("response.output_item.done", output_index=block.number, item=item)

    def _said(self, block: Block, item: dict[str, Any]) -> bytes:
        """A block's content once more."""
        if block.kind == "tool_call":
            whole = {"output_index": block.number, "item_id": item["id"], "name": block.name, "arguments": block.text}
            return self._event("response.function_call_arguments.done", **whole)
        name = "response.output_text.done" if block.kind == "text" else "response.reasoning_text.done"
        rows = {"logprobs": self._rows(block)} if block.kind == "text" else {}
        said = self._in_part(block, name, item["id"], {"text": block.text, **rows})
        return said + self._in_part(block, "response.content_part.done", item["id"], {"part": item["content"][0]})

    def _in_part(self, block: Block, name: str, item_id: str, fields: dict[str, Any]) -> bytes:
        return self._event(name, output_index=block.number, item_id=item_id, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        return event({"type": name, "sequence_number": number, **fields}, name)

    def _item(self, block: Block, status: str) -> dict[str, Any]:
        return output_item(block, status, self._rows(block) if block.kind == "text" else None)

    def _rows(self, block: Block, start: int = 0) -> list[dict[str, Any]]:
        if not self._opening.with_logprobs:
            return []
        top = self._opening.request.top_logprobs or 0
        return chat_rows(self._texts, block.token_ids[start:], block.logprobs[start:], top, as_ids=False)
