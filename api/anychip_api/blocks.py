"""An answer as a sequence of blocks: reasoning, text and tool calls."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip_api.parsers.parts import Part, Reasoning, Text, ToolCallArguments, ToolCallStart
from anychip_api.reader import ChoiceReader

Kind = Literal["reasoning", "text", "tool_call"]


@dataclass(slots=True)
class Block:
    """One block so far. `text` of a tool call is its arguments."""

    kind: Kind
    number: int
    text: str = ""
    call_id: str = ""
    name: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Opened:
    """A block begins."""

    block: Block


@dataclass(frozen=True, slots=True)
class Gained:
    """A block grew by `text`, and by the last `tokens` of its tokens."""

    block: Block
    text: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """A block is complete."""

    block: Block


Change = Opened | Gained | Closed


class Blocks:
    """Puts the parts of one choice into blocks. Tokens whose text is held back go to the next piece of text."""

    def __init__(self, reader: ChoiceReader) -> None:
        self.list: list[Block] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.reasoning_tokens = 0
        self._reader = reader
        self._open: Block | None = None
        self._waiting: list[tuple[list[int], list[TokenLogprobs]]] = []

    def add(self, delta: Delta) -> list[Change]:
        """Take in a delta; returns what it changes. An answer without any block ends as one empty text."""
        gained = self._reader.read(delta)
        self._waiting.append((delta.token_ids, delta.logprobs or []))
        changes = [change for part in gained.parts for change in self._take(part)]
        if self._open is not None and self._open.kind != "text":
            self._waiting.clear()
        if self._open is not None and self._open.kind == "reasoning":
            self.reasoning_tokens += len(delta.token_ids)
        if gained.finish_reason:
            self.finish_reason, self.stop_reason = gained.finish_reason, gained.stop_reason
            if not self.list:
                changes += self._turn_to("text")
            changes += self._close()
        return changes

    def _take(self, part: Part) -> Iterator[Change]:
        match part:
            case Text():
                yield from self._turn_to("text")
            case Reasoning():
                yield from self._turn_to("reasoning")
            case ToolCallStart():
                yield from self._close()
                yield from self._begin(Block("tool_call", len(self.list), call_id=part.id, name=part.name))
                return
            case ToolCallArguments():
                pass
        assert self._open is not None, "arguments follow the start of their call"
        self._open.text += part.text
        yield Gained(self._open, part.text, self._give_tokens(self._open))

    def _turn_to(self, kind: Kind) -> Iterator[Change]:
        if self._open is None or self._open.kind != kind:
            yield from self._close()
            yield from self._begin(Block(kind, len(self.list)))

    def _begin(self, block: Block) -> Iterator[Change]:
        self.list.append(block)
        self._open = block
        yield Opened(block)

    def _close(self) -> Iterator[Change]:
        if self._open is not None:
            yield Closed(self._open)
        self._open = None

    def _give_tokens(self, block: Block) -> int:
        """Give a text the tokens that came since the last one; returns how many."""
        if block.kind != "text":
            return 0
        before = len(block.token_ids)
        for token_ids, logprobs in self._waiting:
            block.token_ids += token_ids
            block.logprobs += logprobs
        self._waiting.clear()
        return len(block.token_ids) - before
