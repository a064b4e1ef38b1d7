"""How far a model computed one way is from the same model computed another way, on a text, token by token."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from anychip.llm import LLM
from anychip.runner.torch_runner import TorchRunner
from anychip.sampling_params import SamplingParams

WINDOW = 500
"""Tokens of a prompt."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Divergence of distributions over the next token, and mean log-likelihoods of the text's own tokens."""

    tokens: int
    mean_divergence: float
    largest_divergence: float
    likelihood: float
    reference_likelihood: float


def held_text() -> str:
    """English prose about Python's language that comes with every Python; nothing was ever tuned on it."""
    return "\n".join(pydoc_data.topics.topics.values())


def compare(reference: LLM, other: LLM, token_ids: Sequence[int]) -> Accuracy:
    """Kullback-Leibler divergence of `other` from `reference` after each token, in windows of 500 tokens.

    Both must take a window in one step, and reuse no prefixes.
    """
    divergences, ours, theirs = [], [], []
    for first in range(0, len(token_ids), WINDOW):
        window = list(token_ids[first : first + WINDOW])
        wanted, given = (_log_probabilities(llm, window) for llm in (reference, other))
        divergences.append((wanted.exp() * (wanted - given)).sum(-1))
        following = torch.tensor(window[1:]).unsqueeze(-1)
        ours.append(given.gather(-1, following))
        theirs.append(wanted.gather(-1, following))
    divergence = torch.cat(divergences)
    return Accuracy(
        tokens=len(divergence),
        mean_divergence=float(divergence.mean()),
        largest_divergence=float(divergence.max()),
        likelihood=float(torch.cat(ours).mean()),
        reference_likelihood=float(torch.cat(theirs).mean()),
    )


def _log_probabilities(llm: LLM, window: list[int]) -> torch.Tensor:
    """[tokens - 1, V] float32, after each token but the last."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    with _seen_logits(llm) as seen:
        llm.generate({"prompt_token_ids": window}, params, use_tqdm=False)
    logits = torch.cat(seen[1:])  # the first is what was sampled from
    assert len(seen[0]) == 1 and len(logits) == len(window) - 1, "the window did not come in one step"
    return logits.log_softmax(-1)


@contextmanager
def _seen_logits(llm: LLM) -> Iterator[list[torch.Tensor]]:
    """Every logits matrix that the model computes meanwhile."""
    runner = llm.engine.runner
    assert isinstance(runner, TorchRunner), "the platform brings its own runner"
    model, seen = runner.model, list[torch.Tensor]()
    compute = model.logits

    def noting(hidden: torch.Tensor) -> torch.Tensor:
        logits = compute(hidden)
        seen.append(logits.float().cpu())
        return logits

    setattr(model, "logits", noting)  # noqa: B010 (mypy forbids assigning to a method)
    try:
        yield seen
    finally:
        delattr(model, "logits")
