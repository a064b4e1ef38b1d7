"""Histograms, log-probabilities and merged streams by themselves."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator

import pytest

from anychip.engine.outputs import Delta, Logprob, TokenLogprobs
from anychip_api.event_stream import event
from anychip_api.histogram import Histogram, one_two_five
from anychip_api.logprobs import LOWEST, add_completion_rows, chat_rows, completion_columns, prompt_rows
from anychip_api.merge import Deltas, merged
from anychip_api.tokens import TokenTexts


def test_a_histogram_counts_up_to_and_including_a_bound() -> None:
    histogram = Histogram([1, 2])
    for value in (0.5, 1, 1.5, 2, 7):
        histogram.observe(value)
    histogram.observe(0.1, times=3)
    assert histogram.buckets() == [("1.0", 5), ("2.0", 7), ("+Inf", 8)]
    assert histogram.total == pytest.approx(12.3)


def test_one_two_five() -> None:
    assert one_two_five(60) == [1, 2, 5, 10, 20, 50]


POSITION: TokenLogprobs = {7: Logprob(-3.0, 3), 4: Logprob(-0.1, 1), 5: Logprob(-math.inf, 2)}


def test_completion_logprobs() -> None:
    columns = completion_columns()
    add_completion_rows(columns, TokenTexts(None), [(3, 0, None), (7, 2, POSITION)], as_ids=False)
    assert columns == {
        "tokens": ["token_id:3", "token_id:7"],
        "token_logprobs": [None, -3.0],
        "top_logprobs": [None, {"token_id:7": -3.0, "token_id:4": -0.1, "token_id:5": LOWEST}],
        "text_offset": [0, 2],
    }


@pytest.mark.parametrize(("top", "best"), [(0, []), (1, ["token_id:4"]), (2, ["token_id:4", "token_id:5"])])
def test_chat_logprobs_list_the_best_first(top: int, best: list[str]) -> None:
    (row,) = chat_rows(TokenTexts(None), [7], [POSITION], top, as_ids=False)
    assert (row["token"], row["logprob"]) == ("token_id:7", -3.0)
    assert [one["token"] for one in row["top_logprobs"]] == best


def test_prompt_logprobs() -> None:
    first, second = prompt_rows(TokenTexts(None), [None, POSITION])
    assert first is None
    assert second is not None
    assert second["7"] == {"logprob": -3.0, "rank": 3, "decoded_token": "token_id:7"}


def test_an_event_is_one_line() -> None:
    text = "a\u0085b\u2028c\u2029d\ne\x0bf\x1cg\U0001f600"
    data = event({"text": text})
    assert len(data.decode().splitlines()) == 2  # the second one is empty and ends the event
    assert json.loads(data.removeprefix(b"data: ")) == {"text": text}


async def stream(*indexes: int, fails: bool = False) -> AsyncIterator[Delta]:
    for index in indexes:
        yield Delta(index)
    await asyncio.sleep(0)
    if fails:
        raise ValueError("broken")
    for index in indexes:
        yield Delta(index, finish_reason="stop")


def collect(*streams: AsyncIterator[Delta], single: bool = False) -> list[Deltas]:
    async def run() -> list[Deltas]:
        return [batch async for batch in merged(streams, single)]

    return asyncio.run(run())


def test_what_is_ready_together_comes_together() -> None:
    batches = collect(stream(0, 1), stream(0, 1))
    assert [[(index, delta.index) for index, delta in batch] for batch in batches] == [
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    ] * 2


def test_a_single_stream_is_passed_on() -> None:
    assert [len(batch) for batch in collect(stream(0), single=True)] == [1, 1]


def test_no_streams_or_empty_ones_end() -> None:
    assert collect(stream(), stream()) == []


def test_one_stream_that_fails_ends_all() -> None:
    with pytest.raises(ValueError, match="broken"):
        collect(stream(0), stream(0, fails=True))


def test_no_task_is_left_behind() -> None:
    async def run() -> int:
        batches = merged([stream(0), stream(0)], single=False)
        await anext(batches)
        await batches.aclose()
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
