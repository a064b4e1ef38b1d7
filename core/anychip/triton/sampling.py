"""Launching the choice of a token: two launches for the highest logit, one for a draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.sample import choose
from anychip.sample.choose import BLOCK
from anychip.triton.chip import Chip
from anychip.triton.programs.greedy import choose_peak, find_peaks
from anychip.triton.programs.sample import draw_tokens

PART = 2048
"""Tokens of the vocabulary that a program of `find_peaks` looks at."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The ops of choosing on one chip."""

    chip: Chip
    lanes: int = 4096
    """See programs/sample.py."""
    sorted_rows: int = 16
    """Up to so many rows are sorted by torch where all logits may decide: a flat row is searched for long here."""

    def greedy(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.greedy."""
        rows, vocabulary = logits.shape
        parts, device = -(-vocabulary // PART), logits.device
        values = torch.empty(rows, parts, dtype=torch.float32, device=device)
        tokens = torch.empty(rows, parts, dtype=torch.int32, device=device)
        ids, highest = _chosen(rows, device)
        if rows:
            find_peaks[(rows, parts)](
                logits, values, tokens, logits.stride(0), V=vocabulary, BLOCK=PART, **self.chip.order
            )
            choose_peak[(rows,)](values, tokens, ids, highest, parts, BLOCK=_power(parts), **self.chip.order)
        return ids, highest

    def sample(
        self,
        logits: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        numbers: torch.Tensor,
        candidates: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.sample."""
        rows, vocabulary = logits.shape
        if candidates >= vocabulary and rows <= self.sorted_rows:
            return choose.sample(logits, temperature, top_k, top_p, min_p, numbers, candidates)
        blocks = _power(-(-vocabulary // BLOCK))
        sums = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
        ids, highest = _chosen(rows, logits.device)
        if rows:
            draw_tokens[(rows,)](
                logits, temperature, top_k, top_p, min_p, numbers, sums, ids, highest, logits.stride(0), V=vocabulary,
                TRUNCATE=candidates > 0, LANES=self.lanes, BLOCK=BLOCK, BLOCKS=blocks, TILE=min(blocks, 32),
                num_warps=self.chip.tuning.warps(512), **self.chip.order,
            )  # fmt: skip
        return ids, highest


def _chosen(rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.empty(rows, dtype=torch.int64, device=device)
    return ids, torch.empty(rows, dtype=torch.float32, device=device)


def _power(count: int) -> int:
    return max(2, 1 << (count - 1).bit_length())
