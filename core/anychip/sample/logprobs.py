"""Log-probabilities of tokens under the model's own distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.shapes import accumulation_dtype
from anychip.sample.choose import in_blocks

BLOCKS = (64, 16)
"""Sizes of the blocks of a row in which its best are looked for: the first of which there are enough."""
FEW = 256
"""So many are sorted at once."""


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """`Logprobs` that are still on the device: token_ids and values [N, K+1], ranks [N]."""

    token_ids: torch.Tensor
    values: torch.Tensor
    ranks: torch.Tensor


def gather_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Score a token a row and the row's best K. logits [N, V] -> (ids and values [N, K+1], ranks [N]).

    K is `count`, or V if that is less. Ids [N, K+1] int32 and values [N, K+1] float32 begin with the given token,
    `token_ids` [N] int (below 0: taken as 0), then come the best ones, equal logits by their ids, the lowest first. A
    rank, int32, counts the logits above the given token's, from 1. Where any logit of a row is not a number neither is
    a value of it, and its ids mean nothing but are tokens.
    """
    logits = logits.to(accumulation_dtype(logits.dtype))
    chosen = token_ids.long().clamp(min=0).unsqueeze(-1)
    own = logits.gather(1, chosen)
    ranks = (logits > own).sum(-1) + 1
    values, ids = best(logits, min(count, logits.shape[-1]))
    scores = torch.cat([own, values], dim=-1) - logits.logsumexp(-1, keepdim=True)
    return torch.cat([chosen, ids], dim=-1).int(), scores, ranks.int()


def best(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest of each row, the lowest id first among equals. [N, V] -> (values, ids int64) [N, count].

    They lie in those blocks of the row whose largest are largest, which are found in the same way, and only few are
    sorted: for a few of many less work than torch.topk, whose order of equals is nowhere promised.
    """
    if not count:
        return logits[:, :0], torch.zeros(len(logits), 0, dtype=torch.int64, device=logits.device)
    size = next((size for size in BLOCKS if logits.shape[1] // size > 2 * count), 0)
    if not size or logits.shape[1] <= FEW:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    blocks = in_blocks(logits, float("-inf"), size)
    chosen = best(blocks.amax(-1), count)[1].sort(dim=-1).values
    inside = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, size)).flatten(1)
    values, at = best(inside, count)
    return values, chosen.gather(1, at // size) * size + at % size
