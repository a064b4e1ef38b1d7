"""Cases E: log-probabilities, echo and prompt_logprobs."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest
from tests.api.running import RunningServer, joined

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "The capital of France is"
LONG = "The quick brown fox jumps over the lazy dog. " * 12


def rows(choice: dict[str, Any]) -> list[tuple[Any, ...]]:
    logprobs = choice["logprobs"]
    columns = [logprobs[name] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
    assert len({len(column) for column in columns}) == 1
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("logprobs", [None, 0, 1, 5])
@pytest.mark.parametrize("prompt", [PROMPT, "ids"])
def test_e1_echo_alone(server: RunningServer, prompt: str, logprobs: int | None) -> None:
    given = server.tokens(PROMPT) if prompt == "ids" else prompt
    answer = server.complete(given, echo=True, max_tokens=0, logprobs=logprobs)
    choice = answer["choices"][0]
    assert choice["text"] == PROMPT
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    if logprobs is None:
        assert choice["logprobs"] is None
    else:
        assert len(rows(choice)) == len(server.tokens(PROMPT))


def test_e1_streamed(server: RunningServer) -> None:
    for logprobs in (None, 1):
        request = {"prompt": PROMPT, "echo": True, "max_tokens": 0, "logprobs": logprobs}
        chunks = server.chunks(COMPLETIONS, {**request, "stream_options": {"include_usage": True}})
        assert joined(chunks) == PROMPT
        assert chunks[-1]["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("logprobs", [0, 1, 3])
def test_e2_entries_are_prompt_tokens_and_one(server: RunningServer, logprobs: int) -> None:
    choice = server.complete(PROMPT, echo=True, logprobs=logprobs, max_tokens=1)["choices"][0]
    entries = rows(choice)
    assert len(entries) == len(server.tokens(PROMPT)) + 1
    assert entries[0][1:3] == (None, None)
    for token, logprob, top, offset in entries[1:]:
        assert logprob <= 0
        assert top[token] == logprob
        assert max(1, logprobs) <= len(top) <= logprobs + 1
        assert choice["text"][offset : offset + len(token)] == token


def test_e2_without_echo_the_generated_tokens(server: RunningServer) -> None:
    choice = server.complete(PROMPT, logprobs=2, max_tokens=6)["choices"][0]
    entries = rows(choice)
    assert len(entries) == 6
    assert "".join(entry[0] for entry in entries) == choice["text"]
    for token, logprob, top, offset in entries:
        assert logprob == max(top.values())
        assert choice["text"][offset : offset + len(token)] == token


def test_e2_the_sum_over_all_tokens_is_one(server: RunningServer) -> None:
    (entry,) = rows(server.complete(PROMPT, logprobs=100, max_tokens=1)["choices"][0])
    assert 0.5 < sum(math.exp(value) for value in entry[2].values()) <= 1.001


def test_e2_loglikelihood_ranks_the_right_answer_first(server: RunningServer) -> None:
    tasks = [
        ("The capital of France is", " Paris", " Madrid"),
        ("The opposite of hot is", " cold", " blue"),
        ("Two plus two equals", " four", " seven"),
        ("The sun rises in the", " east", " cupboard"),
        ("Fish live in the", " water", " desert"),
        ("The color of grass is", " green", " music"),
    ]

    def loglikelihood(context: str, continuation: str) -> float:
        ids = server.tokens(context)
        whole = [*ids, *server.tokens(continuation)]
        choice = server.complete(whole, echo=True, logprobs=1, max_tokens=1)["choices"][0]
        return float(sum(choice["logprobs"]["token_logprobs"][len(ids) : len(whole)]))

    right = sum(loglikelihood(context, good) > loglikelihood(context, bad) for context, good, bad in tasks)
    assert right >= 5


@pytest.mark.parametrize("n", [1, 2])
def test_e2_streamed_entries_equal_whole_ones(server: RunningServer, n: int) -> None:
    fields = {"prompt": PROMPT, "echo": True, "logprobs": 1, "max_tokens": 4, "temperature": 0, "n": n}
    whole = server.post(COMPLETIONS, fields).json()["choices"]
    chunks = server.chunks(COMPLETIONS, fields)
    for choice in whole:
        pieces = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        streamed = [entry for piece in pieces if piece["logprobs"] for entry in rows(piece)]
        assert [entry[0] for entry in streamed] == choice["logprobs"]["tokens"]
        assert [entry[3] for entry in streamed] == choice["logprobs"]["text_offset"]
        for entry, expected in zip(streamed, choice["logprobs"]["token_logprobs"], strict=True):
            assert entry[1] == (expected if expected is None else pytest.approx(expected, abs=1e-3))
        assert joined(chunks, choice["index"]) == choice["text"]


def test_e2_a_batch_with_echo(server: RunningServer) -> None:
    prompts = [PROMPT, "One, two,"]
    choices = server.complete(prompts, echo=True, logprobs=1, max_tokens=1)["choices"]
    for prompt, choice in zip(prompts, choices, strict=True):
        assert choice["text"].startswith(prompt)
        assert len(rows(choice)) == len(server.tokens(prompt)) + 1


def test_offsets_of_split_characters(server: RunningServer) -> None:
    prompt = "a\U0001f600b"
    choice = server.complete(prompt, echo=True, logprobs=0, max_tokens=0)["choices"][0]
    offsets = [entry[3] for entry in rows(choice)]
    assert offsets[0] == 0
    assert offsets[-1] == 2
    assert any(entry[0].startswith("bytes:") for entry in rows(choice))


@pytest.mark.parametrize("top", [None, 0, 1, 5])
def test_chat_logprobs(server: RunningServer, top: int | None) -> None:
    fields = {} if top is None else {"top_logprobs": top}
    choice = server.chat("Say hello.", max_tokens=5, logprobs=True, **fields)["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content[:5]).startswith(choice["message"]["content"])
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top_logprobs"]) == (top or 0)
        values = [one["logprob"] for one in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        if top:
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]  # greedy takes the best


def test_chat_logprobs_in_a_stream(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    request = {"messages": messages, "max_tokens": 5, "logprobs": True, "top_logprobs": 2, "temperature": 0}
    chunks = server.chunks(CHAT, request)
    content = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    whole = server.post(CHAT, request).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == [entry["token"] for entry in whole]


def prompt_values(answer: dict[str, Any]) -> list[float]:
    listed = answer["choices"][0]["prompt_logprobs"]
    assert listed[0] is None
    return [next(iter(entry.values()))["logprob"] for entry in listed[1:]]


def test_e6_the_prefix_cache_changes_no_prompt_logprobs(server: RunningServer) -> None:
    ids = server.tokens(LONG)
    first, again = (server.complete(ids, prompt_logprobs=1, max_tokens=1) for _ in range(2))
    assert len(prompt_values(first)) == len(ids) - 1
    assert prompt_values(again) == pytest.approx(prompt_values(first), abs=1e-3)
    echoed = server.complete(ids, echo=True, logprobs=0, max_tokens=1)["choices"][0]["logprobs"]["token_logprobs"]
    assert echoed[1 : len(ids)] == pytest.approx(prompt_values(first), abs=1e-3)


def test_e6_overlapping_prompts_in_another_order(server: RunningServer) -> None:
    ids = server.tokens(LONG)
    prompts = [ids, ids[:70], [*ids[:50], *server.tokens(" Something else altogether.")], ids[:33]]
    plain = {
        index: server.complete(prompt, prompt_logprobs=0, cache_salt=f"s{index}")
        for index, prompt in enumerate(prompts)
    }
    for index in (3, 1, 2, 0, 2):
        server.complete(prompts[index], max_tokens=2)
        values = prompt_values(server.complete(prompts[index], prompt_logprobs=0))
        assert values == pytest.approx(prompt_values(plain[index]), abs=1e-3)


def test_e6_prompt_logprobs_of_a_chat(server: RunningServer) -> None:
    answer = server.chat("Hi", prompt_logprobs=1, max_tokens=1)
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert answer["prompt_logprobs"][0] is None


def test_the_openai_client_reads_logprobs(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    answer = client.chat.completions.create(
        model="demo", messages=messages, max_tokens=3, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content[0].top_logprobs) == 2
