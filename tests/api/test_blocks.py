"""Answers in blocks: the same however the text is cut."""

from __future__ import annotations

from typing import Any

import pytest

from anychip.engine.outputs import Delta, Logprob
from anychip_api.blocks import Blocks, Closed, Gained, Opened
from anychip_api.parsers.hermes import HermesToolParser
from anychip_api.parsers.registry import Parsers
from anychip_api.parsers.think import ThinkParser
from anychip_api.reader import Reading

TEXT = (
    "<think>Is it Paris?</think>I look.\n"
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
)
READING = Reading(Parsers(tool=HermesToolParser, reasoning=ThinkParser))


def read(blocks: Blocks, text: str, step: int, **ending: Any) -> list[Any]:
    """Every change, with a token a piece, whose log-probability is its place."""
    changes: list[Any] = []
    for place, start in enumerate(range(0, len(text), step)):
        ends = ending if start + step >= len(text) else {}
        piece = text[start : start + step]
        changes += blocks.add(Delta(0, piece, [place], [{place: Logprob(-float(place), 1)}], **ends))
    return changes


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_the_blocks_of_an_answer(step: int) -> None:
    blocks = Blocks(READING.reader())
    changes = read(blocks, TEXT, step, finish_reason="stop")
    assert [(one.kind, one.name) for one in blocks.list] == [
        ("reasoning", ""),
        ("text", ""),
        ("tool_call", "f"),
        ("tool_call", "g"),
    ]
    assert [one.text.strip() for one in blocks.list] == ["Is it Paris?", "I look.", '{"a": 1}', "{}"]
    assert blocks.finish_reason == "tool_calls"
    assert len({one.id for one in blocks.list}) == 4
    for block in blocks.list:
        mine = [change for change in changes if change.block is block]
        assert isinstance(mine[0], Opened)
        assert isinstance(mine[-1], Closed)
        gained = [change for change in mine if isinstance(change, Gained)]
        assert len(gained) == len(mine) - 2
        assert "".join(change.text for change in gained) == block.text
    order = [change.block.number for change in changes]
    assert order == sorted(order), "one block after the other"


def test_reasoning_is_counted() -> None:
    blocks = Blocks(READING.reader())
    read(blocks, "<think>abcdef</think>xyz", 1, finish_reason="stop")
    assert 6 <= blocks.reasoning_tokens <= len("<think>abcdef</think>")


def test_text_has_the_tokens_that_made_it() -> None:
    blocks = Blocks(Reading(Parsers()).reader())
    changes = blocks.add(Delta(0, "", [1], [{1: Logprob(-1.0, 1)}]))  # held back, as half a character is
    assert changes == []
    changes = blocks.add(Delta(0, "ab", [2], [{2: Logprob(-2.0, 1)}], "stop"))
    assert [type(change) for change in changes] == [Opened, Gained, Closed]
    assert changes[1].tokens == 2  # type: ignore[union-attr]
    assert (blocks.list[0].token_ids, len(blocks.list[0].logprobs)) == ([1, 2], 2)


def test_nothing_is_an_empty_text() -> None:
    blocks = Blocks(READING.reader())
    changes = blocks.add(Delta(0, finish_reason="length"))
    assert [type(change) for change in changes] == [Opened, Closed]
    assert (blocks.list[0].kind, blocks.list[0].text, blocks.finish_reason) == ("text", "", "length")
