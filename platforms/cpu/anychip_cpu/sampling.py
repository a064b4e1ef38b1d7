"""Sampling where waiting for a result costs nothing: top_p looks at a few of the largest logits first."""

from __future__ import annotations

import torch

from anychip.sample.choose import descending, draw, scale, top_k_floor, top_p_floor
from anychip.sample.choose import sample as sample_in_full

FEW = 256
"""The largest logits that are looked at before all of them are sorted."""


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    numbers: torch.Tensor,
    candidates: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See anychip.sample.choose.sample: the same tokens, without sorting the vocabulary where `FEW` logits decide."""
    if candidates < logits.shape[-1] or candidates <= FEW:
        return sample_in_full(logits, temperature, top_k, top_p, min_p, numbers, candidates)
    highest = logits.amax(-1)
    scaled = scale(logits, highest, temperature)
    weights = scaled.exp()
    lowest = min_p.log()
    floor, decided = _floor(scaled, weights, FEW, lowest, top_k, top_p)
    rest = torch.nonzero(~decided).squeeze(-1)
    if len(rest):
        whole = logits.shape[-1]
        floor[rest] = _floor(scaled[rest], weights[rest], whole, lowest[rest], top_k[rest], top_p[rest])[0]
    return draw(weights.masked_fill_(scaled < floor.unsqueeze(-1), 0.0), numbers), highest


def _floor(
    scaled: torch.Tensor,
    weights: torch.Tensor,
    count: int,
    lowest: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The threshold of each row by its `count` largest logits, and whether they decided it."""
    largest = descending(scaled, count) if count < scaled.shape[-1] else _sorted(scaled)
    floor = torch.maximum(lowest, top_k_floor(largest, top_k))
    last, reached = top_p_floor(scaled, weights, largest, floor, top_p)
    return torch.maximum(floor, last), reached & (top_k <= count)


def _sorted(scaled: torch.Tensor) -> torch.Tensor:
    """All values of each row, largest first. numpy sorts whole rows several times faster than torch, and no indices."""
    ordered = scaled.neg().numpy()
    ordered.sort(axis=-1)
    return torch.from_numpy(ordered).neg_()
