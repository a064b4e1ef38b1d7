"""From logits to a token that counts: chosen, marked where that failed, and noted as its row's newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from anychip.sample.random import Purpose, uniforms

if TYPE_CHECKING:
    from anychip.sample.op import ChoiceOps

NOT_FINITE = -1
"""In place of a token id: the row's logits hold a NaN or an infinity."""
NOTHING_LEFT = -2
"""In place of a token id: the row's masks leave no token."""


def take_highest(ops: ChoiceOps, logits: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
    """Take the highest logit of each row, and note it. logits [S, V] -> ids [S] int64.

    An id below 0 is NOT_FINITE or NOTHING_LEFT. `newest` [R] int32 is written at `rows` [S] int: the id, or 0 for
    those.
    """
    return _noted(*ops.greedy(logits), rows, newest)


def take_drawn(
    ops: ChoiceOps,
    logits: torch.Tensor,
    keys: torch.Tensor,
    positions: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    candidates: int,
    rows: torch.Tensor,
    newest: torch.Tensor,
) -> torch.Tensor:
    """Draw a token for each row by its stream of numbers, and note it. logits [S, V] -> ids [S] int64.

    keys [S] int64 and output positions [S] int name the numbers, see `uniforms`; the rest is as in `sample` and
    `take_highest`.
    """
    numbers = uniforms(keys, positions, Purpose.SAMPLE)
    return _noted(*ops.sample(logits.float(), temperature, top_k, top_p, min_p, numbers, candidates), rows, newest)


def _noted(ids: torch.Tensor, highest: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
    empty = torch.where(highest == float("-inf"), NOTHING_LEFT, NOT_FINITE)
    ids = torch.where(highest.isfinite(), ids, empty)
    newest.index_copy_(0, rows.long(), ids.clamp(min=0).int())
    return ids
