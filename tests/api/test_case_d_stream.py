"""Cases D: the text and the order of streamed chunks."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.api.running import RunningServer, joined

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Say hello."}]
SPLIT = ["\U0001f600", "\u110b\u1167", "\ud55c", "\u0c05", "\U0001f468\u200d\U0001f469"]


@pytest.mark.parametrize("character", SPLIT)
@pytest.mark.parametrize("n", [1, 3])
def test_d1_a_character_over_several_tokens(server: RunningServer, character: str, n: int) -> None:
    ids = server.tokens(character)
    assert len(ids) > 1
    prompt = server.tokens(character * 30)
    fields = {"allowed_token_ids": sorted(set(ids)), "max_tokens": 4 * len(ids), "n": n, "temperature": 0}
    whole = server.complete(prompt, return_token_ids=True, **fields)["choices"]
    chunks = server.chunks(COMPLETIONS, {"prompt": prompt, **fields})
    for choice in whole:
        expected = server.decode([*prompt, *choice["token_ids"]]).removeprefix(character * 30)
        assert choice["text"] == joined(chunks, choice["index"]) == expected
        if character * 4 == expected:
            assert "\ufffd" not in repr(chunks)


def test_d1_an_emoji_arrives_whole(server: RunningServer) -> None:
    ids = server.tokens("\U0001f600")
    fields = {"allowed_token_ids": ids, "max_tokens": 4 * len(ids), "temperature": 0}
    chunks = server.chunks(COMPLETIONS, {"prompt": "\U0001f600" * 30, **fields})
    assert "\ufffd" not in joined(chunks)
    assert "\U0001f600" in joined(chunks)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
@pytest.mark.parametrize(("path", "start"), [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": MESSAGES})])
def test_d3_no_usage_unless_asked(server: RunningServer, path: str, start: dict[str, Any], options: Any) -> None:
    request = {**start, "max_tokens": 3, **({} if options is None else {"stream_options": options})}
    chunks = server.chunks(path, request)
    assert all("usage" not in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize(("path", "start"), [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": MESSAGES})])
@pytest.mark.parametrize("n", [1, 2])
def test_d3_usage_in_a_last_chunk(server: RunningServer, path: str, start: dict[str, Any], n: int) -> None:
    fields = {**start, "max_tokens": 3, "ignore_eos": True, "n": n}
    chunks = server.chunks(path, {**fields, "stream_options": {"include_usage": True}})
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    usage = server.post(path, fields).json()["usage"]
    for one in (usage, chunks[-1]["usage"]):
        del one["prompt_tokens_details"]
    assert chunks[-1]["usage"] == usage
    assert usage["completion_tokens"] == 3 * n
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3 * n


def test_d3_continuous_usage(server: RunningServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = server.chunks(COMPLETIONS, {"prompt": "Hi", "max_tokens": 3, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert all(counts)


@pytest.mark.parametrize("options", [True, {"include_usage": "yes"}, {"include_usage": 1}])
def test_d3_bad_options(server: RunningServer, options: Any) -> None:
    error = server.refused(COMPLETIONS, {"prompt": "Hi", "stream": True, "stream_options": options})
    assert error["param"] == "stream_options"


def test_d3_options_without_a_stream(server: RunningServer) -> None:
    request = {"prompt": "Hi", "stream_options": {"include_usage": True}}
    assert server.refused(COMPLETIONS, request)["param"] == "stream_options"


@pytest.mark.parametrize("n", [1, 3])
def test_the_order_of_chat_chunks(server: RunningServer, n: int) -> None:
    chunks = server.chunks(CHAT, {"messages": MESSAGES, "max_tokens": 4, "ignore_eos": True, "n": n})
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    for index in range(n):
        pieces = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == index]
        assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
        assert all(set(piece["delta"]) == {"content"} for piece in pieces[1:-1])
        assert all(piece["finish_reason"] is None for piece in pieces[:-1])
        assert pieces[-1]["delta"] == {}
        assert pieces[-1]["finish_reason"] == "length"


def test_a_stream_joins_to_the_whole_answer(server: RunningServer) -> None:
    fields = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12}
    whole = server.post(CHAT, fields).json()["choices"][0]
    assert joined(server.chunks(CHAT, fields)) == whole["message"]["content"]


def test_the_openai_client_streams(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
