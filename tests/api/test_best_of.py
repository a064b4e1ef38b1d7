"""`best_of` answers with the choices of the highest mean log-probability."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.running import RunningServer

COMPLETIONS = "/v1/completions"
SAMPLED = {"prompt": "Once upon a time", "temperature": 1.5, "seed": 3, "max_tokens": 8, "ignore_eos": True}


def choices(server: RunningServer, **fields: Any) -> list[dict[str, Any]]:
    answer = server.post(COMPLETIONS, {**SAMPLED, **fields})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choices"])


def test_the_best_are_kept(server: RunningServer) -> None:
    everything = choices(server, n=4, logprobs=0)
    ranked = sorted(everything, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
    best = choices(server, n=2, best_of=4)
    assert [choice["text"] for choice in best] == [choice["text"] for choice in ranked[:2]]
    assert [(choice["index"], choice["logprobs"]) for choice in best] == [(0, None), (1, None)]
    prompts = choices(server, prompt=["Once upon a time", "Hello"], best_of=4, logprobs=1)
    assert [choice["index"] for choice in prompts] == [0, 1]
    assert prompts[0]["text"] == ranked[0]["text"]
    assert prompts[0]["logprobs"]["token_logprobs"] == ranked[0]["logprobs"]["token_logprobs"]


def test_candidates_count_as_generated(server: RunningServer) -> None:
    usage = server.post(COMPLETIONS, {**SAMPLED, "best_of": 3}).json()["usage"]
    assert usage["completion_tokens"] == 3 * 8


@pytest.mark.parametrize("fields", [{"best_of": 1, "n": 2}, {"best_of": 0}, {"best_of": 10**6}, {"best_of": "2"}])
def test_a_wrong_number(server: RunningServer, fields: dict[str, Any]) -> None:
    assert server.refused(COMPLETIONS, {**SAMPLED, **fields})["param"] == "best_of"


def test_it_does_not_fit_a_stream(server: RunningServer) -> None:
    assert server.refused(COMPLETIONS, {**SAMPLED, "best_of": 2, "stream": True})["param"] == "best_of"
    assert server.chunks(COMPLETIONS, {**SAMPLED, "best_of": 2, "n": 2})
