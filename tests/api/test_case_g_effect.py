"""Cases G: no sampling field is accepted and ignored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.api.running import RunningServer

PROMPT = "Here is a story about a little red house on a hill. Once"


def ids(server: RunningServer, **fields: Any) -> list[int]:
    answer = server.complete(PROMPT, max_tokens=24, ignore_eos=True, return_token_ids=True, **fields)
    return list(answer["choices"][0]["token_ids"])


def sampled(server: RunningServer, **fields: Any) -> list[list[int]]:
    fields = {"temperature": 1, "seed": 5, "n": 4, **fields}
    answer = server.complete(PROMPT, max_tokens=12, ignore_eos=True, return_token_ids=True, **fields)
    return [choice["token_ids"] for choice in answer["choices"]]


@pytest.mark.parametrize("field", ["presence_penalty", "frequency_penalty"])
def test_g1_penalties_of_the_output(server: RunningServer, field: str) -> None:
    words = server.tokens(" red blue green white black yellow small large old new")

    def distinct(value: float) -> int:
        return len(set(ids(server, allowed_token_ids=words, **{field: value})))

    assert distinct(-2) < distinct(2)
    assert distinct(-2) <= distinct(0) <= distinct(2)


def test_g1_repetition_penalty(server: RunningServer) -> None:
    free, penalized = (Counter(ids(server, repetition_penalty=value)) for value in (1, 2))
    assert len(penalized) > len(free)


def test_g1_temperature(server: RunningServer) -> None:
    assert len({tuple(row) for row in sampled(server, temperature=0)}) == 1
    assert len({tuple(row) for row in sampled(server, temperature=1.5)}) == 4


@pytest.mark.parametrize("field", [{"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1.0}])
def test_g1_truncation_leaves_the_best_only(server: RunningServer, field: dict[str, float]) -> None:
    greedy = sampled(server, temperature=0)
    assert sampled(server, **field) == greedy
    assert sampled(server) != greedy


def test_g1_seed(server: RunningServer) -> None:
    assert sampled(server, seed=5) == sampled(server, seed=5) != sampled(server, seed=6)


def test_g1_logit_bias_both_ways(server: RunningServer) -> None:
    first = ids(server)[0]
    assert first not in ids(server, logit_bias={str(first): -100})
    (word,) = server.tokens(" red")
    assert set(ids(server, logit_bias={str(word): 100})) == {word}


def test_g1_bad_words(server: RunningServer) -> None:
    text = server.text(PROMPT, max_tokens=24)
    word = text.split()[0].strip(",.")
    assert word not in server.text(PROMPT, max_tokens=24, bad_words=[word]).split()


def test_g1_allowed_token_ids(server: RunningServer) -> None:
    allowed = server.tokens(" red blue green")
    assert set(ids(server, allowed_token_ids=allowed)) <= set(allowed)


def test_g1_min_tokens(server: RunningServer) -> None:
    (end,) = server.tokens("<|im_end|>")
    bias = {"logit_bias": {str(end): 100}}
    assert server.complete("Hi", **bias)["usage"]["completion_tokens"] == 1
    assert server.complete("Hi", min_tokens=6, **bias)["usage"]["completion_tokens"] == 7


def test_g1_chat_honours_them_as_well(server: RunningServer) -> None:
    (word,) = server.tokens(" red")
    content = server.chat("Hi", logit_bias={str(word): 100}, max_tokens=4)["choices"][0]["message"]["content"]
    assert content == " red red red red"


def test_g2_what_each_penalty_looks_at(server: RunningServer) -> None:
    # The prompt is full of " red"; its bias makes it win unless it is penalized. One token: the output is empty yet.
    (red,) = server.tokens(" red")
    prompt = [*server.tokens("red red red red red red red red"), red]

    def first(**fields: float) -> int:
        answer = server.complete(prompt, max_tokens=1, logprobs=0, return_token_ids=True, **fields)
        return int(answer["choices"][0]["token_ids"][0])

    def logprob(**fields: float) -> float:
        # The value of " red" after penalties, by what it takes to force it.
        answer = server.complete(prompt, max_tokens=1, logprobs=100, logit_bias={str(red): 0}, **fields)
        top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        return float(top.get(" red", -100))

    assert first() == red
    assert first(presence_penalty=2, frequency_penalty=2) == red
    assert logprob(presence_penalty=2, frequency_penalty=2) == pytest.approx(logprob(), abs=1e-3)
    assert first(repetition_penalty=10) != red


def test_g2_presence_and_frequency_count_the_output(server: RunningServer) -> None:
    (red,) = server.tokens(" red")
    prompt = server.tokens("red red red red red red red red")

    def output(**fields: float) -> list[int]:
        answer = server.complete(prompt, max_tokens=16, ignore_eos=True, return_token_ids=True, **fields)
        return list(answer["choices"][0]["token_ids"])

    assert output().count(red) > output(frequency_penalty=2).count(red) >= 1
