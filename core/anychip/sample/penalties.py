"""Counts of each row's tokens, and what they take off the logits."""

from __future__ import annotations

import numpy as np
import torch

from anychip.engine.batch import AdmittedRow, Int32
from anychip.ops.shapes import accumulation_dtype
from anychip.sample.send import Send

_FIRST_SLOTS = 8


class TokenCounts:
    """How often each token is in a row's output, and whether it is in prompt or output at all.

    Only rows that use a penalty hold a slot; memory is taken when the first one comes and grows by doubling.
    """

    def __init__(self, vocab_size: int, device: torch.device, send: Send) -> None:
        self.vocab_size = vocab_size
        self._send = send
        self.output = torch.zeros(0, vocab_size, dtype=torch.int32, device=device)
        self.seen = torch.zeros(0, vocab_size, dtype=torch.bool, device=device)
        self.slots: dict[int, int] = {}
        self._free: list[int] = []

    def admit(self, row: AdmittedRow) -> None:
        """Give a row a slot and count its history."""
        if not self._free:
            self._grow()
        slot = self.slots[row.row] = self._free.pop()
        prompt, output = (self._ids(ids) for ids in (row.prompt_token_ids, row.output_token_ids))
        self.seen[slot] = False
        self.seen[slot, prompt] = True
        self.seen[slot, output] = True
        counts = self.output[slot].zero_()
        counts.index_put_((output,), counts.new_ones(()), accumulate=True)

    def retire(self, row: int) -> None:
        """Free a row's slot, if it has one."""
        slot = self.slots.pop(row, None)
        if slot is not None:
            self._free.append(slot)

    def _grow(self) -> None:
        held = len(self.output)
        more = max(_FIRST_SLOTS, held)
        self.output = torch.cat([self.output, self.output.new_zeros(more, self.vocab_size)])
        self.seen = torch.cat([self.seen, self.seen.new_zeros(more, self.vocab_size)])
        self._free.extend(range(held + more - 1, held - 1, -1))

    def _ids(self, token_ids: Int32 | None) -> torch.Tensor:
        assert token_ids is not None, "a row with a penalty was admitted without its history"
        return self._send(token_ids.astype(np.int64))


def apply_penalties(
    logits: torch.Tensor,
    index: torch.Tensor,
    slots: torch.Tensor,
    counts: torch.Tensor,
    seen: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
    keep: bool,
) -> torch.Tensor:
    """Penalize tokens that came before. logits [S, V] -> [S, V] float32, in place where they are, unless `keep`.

    `index` [P] int64, distinct and ascending, names the rows with a penalty, `slots` [P] int64 their lines of `counts`
    [N, V] int32, how often each token is in the output, and `seen` [N, V] bool, whether it is in prompt or output at
    all: true wherever the count is not 0. The penalties [P] are float32.

    Repetition divides positive and multiplies negative logits of tokens in prompt or output (Keskar et al., 2019);
    frequency and presence look at the output only (OpenAI).
    """
    out = logits.to(accumulation_dtype(logits.dtype), copy=keep)
    rows, count, factor = out[index], counts[slots], repetition.unsqueeze(-1)
    rows = torch.where(seen[slots], torch.where(rows > 0, rows / factor, rows * factor), rows)
    out[index] = rows - count * frequency.unsqueeze(-1) - (count > 0) * presence.unsqueeze(-1)
    return out


def count_tokens(
    token_ids: torch.Tensor, index: torch.Tensor, slots: torch.Tensor, counts: torch.Tensor, seen: torch.Tensor
) -> None:
    """Count a token more in each of some rows. token_ids [S] int64, below 0 taken as 0.

    The rest is as in `apply_penalties`; the slots are distinct.
    """
    ids = token_ids[index].clamp(min=0)
    counts[slots, ids] += 1
    seen[slots, ids] = True
