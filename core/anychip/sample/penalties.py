"""Counts of each row's tokens, and what they take off the logits."""

from __future__ import annotations

import numpy as np
import torch

from anychip.engine.batch import AdmittedRow, Int32
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

    def count(self, slots: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Add one sampled token a slot. slots [P] distinct, token_ids [P] int64."""
        self.output[slots, token_ids] += 1
        self.seen[slots, token_ids] = True

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
    output: torch.Tensor,
    seen: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> torch.Tensor:
    """Penalized logits. logits [P, V] float32, output [P, V] int32, seen [P, V] bool, the penalties [P].

    Repetition divides positive and multiplies negative logits of tokens in prompt or output (Keskar et al., 2019);
    frequency and presence look at the output only (OpenAI).
    """
    repetition = repetition.unsqueeze(-1)
    scaled = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen, scaled, logits)
    return logits - output * frequency.unsqueeze(-1) - (output > 0) * presence.unsqueeze(-1)
