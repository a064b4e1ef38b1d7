"""Log-probabilities of tokens under the model's own distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """`Logprobs` that are still on the device: token_ids and values [N, K+1], ranks [N]."""

    token_ids: torch.Tensor
    values: torch.Tensor
    ranks: torch.Tensor


def score(logits: torch.Tensor, token_ids: torch.Tensor, count: int) -> DeviceLogprobs:
    """Score a token a row and its `count` best alternatives. logits [N, V], token_ids [N] (below 0: taken as 0)."""
    logits = logits.float()
    chosen = token_ids.long().clamp(min=0).unsqueeze(-1)
    own = logits.gather(1, chosen)
    ranks = (logits > own).sum(-1) + 1
    best = logits.topk(min(count, logits.shape[-1]), dim=-1)
    values = torch.cat([own, best.values], dim=-1) - logits.logsumexp(-1, keepdim=True)
    return DeviceLogprobs(torch.cat([chosen, best.indices], dim=-1).int(), values, ranks.int())
