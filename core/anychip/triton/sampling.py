"""Launching the choice of tokens, and noting them: two launches, whatever sampling asks for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.sample.choose import BLOCK
from anychip.triton.chip import Chip
from anychip.triton.powers import power_of_two
from anychip.triton.programs.draw import draw_tokens, weigh_blocks
from anychip.triton.programs.greedy import choose_peak, find_peaks

PART = 2048
"""Tokens of the vocabulary that a program of the first launch reads."""
TILE = PART // BLOCK
"""Blocks in a part, see `anychip.sample.choose`."""
THREADS = 512
"""Threads of the program that draws a row's token."""
SHIFTS = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}
"""Low bits of a float32 that are always 0 if it was converted from such a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Where random numbers come from, and where tokens go.

    `sample` is given `numbers` [L] and `highest` [L]; `take_drawn` draws from `keys` [L] at `positions` [L], and notes
    tokens in `newest` at `rows` [L].
    """

    ids: torch.Tensor
    numbers: torch.Tensor | None = None
    highest: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    newest: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """The ops that choose tokens, on one chip. L rows of logits."""

    chip: Chip
    room: int = 16384
    """Most logits of a row that are listed around its cut; if there are more, the row itself is searched, slowly."""

    def greedy(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.greedy."""
        ids, highest = _chosen(logits)
        self._highest(logits, ids, highest, None, None)
        return ids, highest

    def take_highest(self, logits: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
        """See anychip.sample.take.take_highest."""
        ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
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
        ids, highest = _chosen(logits)
        self._draw(logits, parameters, Draw(ids=ids, numbers=numbers, highest=highest))
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
        ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        self._draw(logits, parameters, Draw(ids=ids, keys=keys, positions=positions, rows=rows, newest=newest))
        return ids

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

    def _draw(self, logits: torch.Tensor, parameters: tuple[torch.Tensor, ...], draw: Draw) -> None:
        (count, vocabulary), device, order = logits.shape, logits.device, self.chip.order
        if not count:
            return
        parts, room = -(-vocabulary // PART), min(self.room, power_of_two(vocabulary))
        blocks = parts * TILE
        of_blocks = torch.empty(3, count, blocks, dtype=torch.float32, device=device)
        places = torch.empty(2, count, blocks, dtype=torch.int32, device=device)
        lists = torch.empty(count, room, dtype=torch.float32, device=device)
        sizes = {"V": vocabulary, "BLOCK": BLOCK, "TILE": TILE}
        weigh_blocks[(count, parts)](logits, parameters[0], of_blocks, logits.stride(0), **sizes, **order)
        draw_tokens[(count,)](
            logits, *parameters, of_blocks, places, lists, draw.numbers, draw.keys, draw.positions, draw.ids,
            draw.highest, draw.rows, draw.newest, logits.stride(0), blocks, TAKE=draw.newest is not None,
            BLOCKS=power_of_two(blocks), ROOM=room, SHIFT=SHIFTS[logits.dtype],
            num_warps=self.chip.tuning.warps(THREADS), **sizes, **order,
        )  # fmt: skip


def _chosen(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Uninitialised memory for the tokens and the highest logits of all rows, [L] each."""
    ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    return ids, torch.empty(len(logits), dtype=torch.float32, device=logits.device)
