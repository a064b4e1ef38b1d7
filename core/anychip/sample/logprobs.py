"""Log-probabilities of tokens under the model's own distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.shapes import accumulation_dtype
from anychip.sample.choose import BLOCK, in_blocks


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

    They lie in those blocks of the vocabulary whose largest are largest, and only these are sorted: less work than
    torch.topk, whose order of equals is nowhere promised.
    """
    blocks = in_blocks(logits, float("-inf"))
    order = blocks.amax(-1).sort(dim=-1, descending=True, stable=True).indices
    chosen = order[:, :count].sort(dim=-1).values.unsqueeze(-1)
    values, at = blocks.gather(1, chosen.expand(-1, -1, BLOCK)).flatten(1).sort(dim=-1, descending=True, stable=True)
    tokens = (chosen * BLOCK + torch.arange(BLOCK, device=logits.device)).flatten(1)
    return values[:, :count], tokens.gather(1, at[:, :count])
