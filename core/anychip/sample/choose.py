"""Choosing a token: the highest logit, or a draw from the truncated distribution. All shapes are static.

What is kept is a matter of thresholds, so that the order in which a device sorts equal logits never matters: top_k
keeps every logit equal to the k-th, top_p every one equal to the last it needs.
"""

from __future__ import annotations

import torch
from torch.nn import functional

BLOCK = 128
LOWEST_TEMPERATURE = 1e-10
"""Below this a division of float32 logits says nothing more."""


def greedy(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The highest logit of each row; ties go to the lowest id. [L, V] -> (ids [L] int64, highest [L] float32).

    `highest` is not a number where any logit is not; the id means nothing then.
    """
    blocks = in_blocks(logits.float(), float("-inf"))
    tops = blocks.amax(-1)
    highest = tops.amax(-1)
    block = first(tops == highest.unsqueeze(-1)).clamp(max=tops.shape[1] - 1)
    inside = first(_take(blocks, block) == highest.unsqueeze(-1)).clamp(max=BLOCK - 1)
    return block * BLOCK + inside, highest


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    numbers: torch.Tensor,
    candidates: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row. logits [L, V] float32 -> (ids [L] int64, highest logit [L] float32).

    temperature > 0, top_p and min_p [L] float32, top_k [L] int32 (0: off), numbers [L, 2] uniform in [0, 1).
    `candidates` is how many of the largest logits decide top_k and top_p: 0 when no row uses them, V when unknown.
    min_p applies first, then top_k, then top_p to what is left.
    """
    highest = logits.amax(-1)
    scaled = scale(logits, highest, temperature)
    weights = scaled.exp()
    floor = min_p.log()
    if candidates:
        largest = descending(scaled, candidates)
        floor = torch.maximum(floor, top_k_floor(largest, top_k))
        floor = torch.maximum(floor, top_p_floor(scaled, weights, largest, floor, top_p)[0])
    return draw(weights.masked_fill_(scaled < floor.unsqueeze(-1), 0.0), numbers), highest


def scale(logits: torch.Tensor, highest: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Logits over temperature, shifted so that the highest is 0. [L, V], [L], [L] -> [L, V]."""
    return (logits - highest.unsqueeze(-1)).div_(temperature.clamp(min=LOWEST_TEMPERATURE).unsqueeze(-1))


def descending(scaled: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` largest values of each row, largest first."""
    if count < scaled.shape[-1]:
        return scaled.topk(count, dim=-1).values
    return scaled.sort(dim=-1, descending=True).values


def top_k_floor(largest: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """The k-th largest value where top_k is on. largest [L, C] descending, top_k [L] -> [L]."""
    kth = largest.gather(1, (top_k.clamp(1, largest.shape[1]) - 1).long().unsqueeze(-1)).squeeze(-1)
    return torch.where(top_k > 0, kth, float("-inf"))


def top_p_floor(
    scaled: torch.Tensor, weights: torch.Tensor, largest: torch.Tensor, floor: torch.Tensor, top_p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Value of the last token that top_p needs, of those at or above `floor`, and whether `largest` reached that far.

    scaled and weights = exp(scaled) [L, V], largest [L, C] descending, floor and top_p [L] -> ([L], [L] bool).
    """
    total = weights.masked_fill(scaled < floor.unsqueeze(-1), 0.0).sum(-1)
    mass = largest.exp().masked_fill_(largest < floor.unsqueeze(-1), 0.0).cumsum(-1)
    needed = (mass < (top_p * total).unsqueeze(-1)).sum(-1)
    last = largest.gather(1, needed.clamp(max=largest.shape[1] - 1).unsqueeze(-1)).squeeze(-1)
    reached = (needed < largest.shape[1]) | (largest[:, -1] <= floor) | (top_p >= 1.0)
    return torch.where(top_p < 1.0, last, float("-inf")), reached


def draw(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """A token with probability proportional to its weight. [L, V], [L, 2] in [0, 1) -> ids [L] int64.

    A block of the vocabulary is drawn with the first number, a token in it with the second: each float32 sum is short,
    and two numbers of 24 bits reach the tail of the distribution.
    """
    blocks = in_blocks(weights, 0.0)
    block = _inverse(blocks.sum(-1), numbers[:, 0])
    return block * BLOCK + _inverse(_take(blocks, block), numbers[:, 1])


def first(condition: torch.Tensor) -> torch.Tensor:
    """Index of the first true element of the last axis, its length if there is none. [.., n] bool -> [..] int64."""
    length = condition.shape[-1]
    return torch.where(condition, torch.arange(length, device=condition.device), length).amin(-1)


def _inverse(weights: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Where the running sum of weights [L, n] passes number [L] of its total; never an element of weight 0."""
    mass = weights.cumsum(-1)
    positive = weights > 0
    passed = (mass > number.unsqueeze(-1) * mass[:, -1:]) & positive
    index = torch.arange(weights.shape[-1], device=weights.device)
    last = torch.where(positive, index, 0).amax(-1)
    return torch.minimum(first(passed), last)


def in_blocks(x: torch.Tensor, fill: float, size: int = BLOCK) -> torch.Tensor:
    """[L, V] -> [L, ceil(V / size), size], padded with `fill`."""
    rest = -x.shape[-1] % size
    return (functional.pad(x, (0, rest), value=fill) if rest else x).reshape(x.shape[0], -1, size)


def _take(blocks: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """One block of each row. [L, n, BLOCK], [L] -> [L, BLOCK]."""
    return blocks.gather(1, block.view(-1, 1, 1).expand(-1, 1, BLOCK)).squeeze(1)
