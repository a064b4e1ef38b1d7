"""Choosing a token where the highest of a row does not tell what is wrong with it.

XLA's maximum passes over what is no number, and of nothing but -inf it makes the lowest float there is.
"""

from __future__ import annotations

import torch

from anychip.sample import choose


def greedy(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See anychip.sample.choose.greedy."""
    ids, highest = choose.greedy(logits)
    return ids, _told(logits, highest)


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    numbers: torch.Tensor,
    candidates: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See anychip.sample.choose.sample."""
    ids, highest = choose.sample(logits, temperature, top_k, top_p, min_p, numbers, candidates)
    return ids, _told(logits, highest)


def _told(logits: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """`highest` [L] of logits [L, V], not a number where any of them is not, -inf where all are."""
    highest = torch.where(logits.isnan().any(-1), float("nan"), highest)
    return torch.where((logits == float("-inf")).all(-1), float("-inf"), highest)
