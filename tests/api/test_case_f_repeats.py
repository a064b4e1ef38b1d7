"""Cases F: determinism, seeds and the prefix cache."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.running import RunningServer, joined

COMPLETIONS = "/v1/completions"
PROMPT = "A short list of things that one may find in a kitchen, in no order: a pan, a spoon, a bowl, " * 3


@pytest.mark.parametrize("salted", [False, True])
def test_f1_greedy_repeats(server: RunningServer, salted: bool) -> None:
    def ask(number: int) -> dict[str, Any]:
        # a salt of its own keeps a request from the blocks of those before
        salt = {"cache_salt": f"f1-{number}"} if salted else {}
        return server.complete(PROMPT, max_tokens=12, logprobs=0, **salt)["choices"][0]

    answers = [ask(number) for number in range(5)]
    assert len({answer["text"] for answer in answers}) == 1
    for answer in answers[1:]:
        expected = answers[0]["logprobs"]["token_logprobs"]
        assert answer["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-3)


def test_f1_the_cache_is_used_and_salts_part_it(server: RunningServer) -> None:
    server.complete(PROMPT, cache_salt="one")
    again = server.complete(PROMPT, cache_salt="one")
    other = server.complete(PROMPT, cache_salt="two")
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_f2_seeds(server: RunningServer) -> None:
    def texts(times: int, **fields: Any) -> set[str]:
        return {server.text("Once", temperature=1, max_tokens=12, **fields) for _ in range(times)}

    assert len(texts(5, seed=42)) == 1
    assert texts(1, seed=43) != texts(1, seed=42)
    assert len(texts(5)) > 1


def test_f2_company_does_not_change_a_seeded_row(server: RunningServer) -> None:
    alone = server.text("Once", temperature=1, seed=42, max_tokens=8)
    choices = server.complete(["Zero", "One and", "Once"], temperature=1, seed=42, max_tokens=8)["choices"]
    assert choices[2]["text"] == alone


def test_f4_seeded_choices(server: RunningServer) -> None:
    prompt = "Nobody in the village had ever seen such a thing before, and when the old man opened the door, he saw"
    fields = {"prompt": prompt, "n": 4, "seed": 7, "temperature": 1, "max_tokens": 10}
    runs = [[choice["text"] for choice in server.post(COMPLETIONS, fields).json()["choices"]] for _ in range(2)]
    assert len(set(runs[0])) == 4
    assert runs[0] == runs[1]
    chunks = server.chunks(COMPLETIONS, fields)
    assert [joined(chunks, index) for index in range(4)] == runs[0]
    reasons = [piece["index"] for chunk in chunks for piece in chunk["choices"] if piece["finish_reason"] is not None]
    assert sorted(reasons) == [0, 1, 2, 3]
