"""Launching the choice of a token and its note: two launches for the highest logit, one to three for a draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.sample import choose, take
from anychip.sample.choose import BLOCK
from anychip.triton.chip import Chip
from anychip.triton.programs.draw import draw_block, weigh_blocks
from anychip.triton.programs.greedy import choose_peak, find_peaks
from anychip.triton.programs.sample import draw_tokens

PART = 2048
"""Tokens of the vocabulary that a program of `find_peaks` looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Where random numbers come from and where tokens go: `numbers` and `highest` for `sample`, else the rest."""

    ids: torch.Tensor
    numbers: torch.Tensor | None = None
    highest: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    newest: torch.Tensor | None = None


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
        ids, highest = _chosen(logits)
        self._highest(logits, ids, highest, None, None)
        return ids, highest

    def take_highest(self, logits: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
        """See anychip.sample.take.take_highest."""
        ids = _chosen(logits)[0]
        self._highest(logits, ids, None, rows, newest)
        return ids

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
        parameters = temperature, top_k, top_p, min_p
        if self._sorts(logits, candidates):
            return choose.sample(logits, *parameters, numbers, candidates)
        ids, highest = _chosen(logits)
        self._draw(logits, parameters, candidates, Draw(ids=ids, numbers=numbers, highest=highest))
        return ids, highest

    def take_drawn(
        self,
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
        """See anychip.sample.take.take_drawn."""
        parameters = temperature, top_k, top_p, min_p
        if self._sorts(logits, candidates):
            return take.take_drawn(self, logits, keys, positions, *parameters, candidates, rows, newest)
        ids = _chosen(logits)[0]
        self._draw(
            logits, parameters, candidates, Draw(ids=ids, keys=keys, positions=positions, rows=rows, newest=newest)
        )
        return ids

    def _sorts(self, logits: torch.Tensor, candidates: int) -> bool:
        return candidates >= logits.shape[1] and logits.shape[0] <= self.sorted_rows

    def _peaks(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The highest logit of each part of the vocabulary, and its token, both [L, parts]."""
        count, vocabulary = logits.shape
        parts, device = -(-vocabulary // PART), logits.device
        values = torch.empty(count, parts, dtype=torch.float32, device=device)
        tokens = torch.empty(count, parts, dtype=torch.int32, device=device)
        find_peaks[(count, parts)](
            logits, values, tokens, logits.stride(0), V=vocabulary, BLOCK=PART, **self.chip.order
        )
        return values, tokens

    def _highest(
        self,
        logits: torch.Tensor,
        ids: torch.Tensor,
        highest: torch.Tensor | None,
        rows: torch.Tensor | None,
        newest: torch.Tensor | None,
    ) -> None:
        if len(logits):
            values, tokens = self._peaks(logits)
            parts = values.shape[1]
            choose_peak[(len(logits),)](
                values, tokens, ids, highest, rows, newest, parts, TAKE=newest is not None, BLOCK=power_of_two(parts),
                **self.chip.order,
            )  # fmt: skip

    def _draw(self, logits: torch.Tensor, parameters: tuple[torch.Tensor, ...], candidates: int, draw: Draw) -> None:
        if len(logits):
            draw_from = self._draw_truncated if candidates else self._draw_by_parts
            draw_from(logits, parameters, draw)

    def _draw_truncated(self, logits: torch.Tensor, parameters: tuple[torch.Tensor, ...], draw: Draw) -> None:
        count, vocabulary = logits.shape
        blocks = power_of_two(-(-vocabulary // BLOCK))
        sums = torch.empty(count, blocks, dtype=torch.float32, device=logits.device)
        draw_tokens[(count,)](
            logits, *parameters, draw.numbers, draw.keys, draw.positions, sums, draw.ids, draw.highest, draw.rows,
            draw.newest, logits.stride(0), V=vocabulary, TAKE=draw.newest is not None, LANES=self.lanes, BLOCK=BLOCK,
            BLOCKS=blocks, TILE=min(blocks, 32), num_warps=self.chip.tuning.warps(512), **self.chip.order,
        )  # fmt: skip

    def _draw_by_parts(self, logits: torch.Tensor, parameters: tuple[torch.Tensor, ...], draw: Draw) -> None:
        temperature, _, _, min_p = parameters
        peaks, _ = self._peaks(logits)
        (count, parts), vocabulary = peaks.shape, logits.shape[1]
        sums = torch.empty(count, parts * (PART // BLOCK), dtype=torch.float32, device=logits.device)
        sizes = {"PARTS": power_of_two(parts), "BLOCK": BLOCK, "TILE": PART // BLOCK, "V": vocabulary}
        weigh_blocks[(count, parts)](
            logits, peaks, temperature, min_p, sums, logits.stride(0), parts, **sizes, **self.chip.order
        )
        draw_block[(count,)](
            logits, peaks, temperature, min_p, draw.numbers, draw.keys, draw.positions, sums, draw.ids, draw.highest,
            draw.rows, draw.newest, logits.stride(0), parts, TAKE=draw.newest is not None,
            BLOCKS=power_of_two(sums.shape[1]), **sizes, **self.chip.order,
        )  # fmt: skip


def _chosen(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for a token and the highest logit of each row."""
    ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    return ids, torch.empty(len(logits), dtype=torch.float32, device=logits.device)


def power_of_two(count: int) -> int:
    """The next one, at least 2."""
    return max(2, 1 << (count - 1).bit_length())
