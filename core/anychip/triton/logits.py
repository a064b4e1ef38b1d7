"""Launching what is done to logits and read off them. Each op is one launch, log-probabilities are two."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.powers import power_of_two
from anychip.triton.programs.edits import add_entries, mask_bits
from anychip.triton.programs.logprobs import offer_best, score_best
from anychip.triton.programs.penalties import count_newest, penalize

BLOCK = 1024
"""Tokens of the vocabulary that a program penalizes."""
MASKED = 4096
"""Tokens that a program masks."""
PLACES = 256
"""Least number of rows with a penalty that the program that looks them up is compiled for."""
ENTRIES = 128
"""Single logits, or rows, that a program edits."""


@dataclass(frozen=True, slots=True)
class Logits:
    """The ops on logits on one chip."""

    chip: Chip
    part: int = 2048
    """Tokens of the vocabulary out of which a program of the first launch picks the likeliest."""
    threads: int = 128
    """Threads of a program of the second launch, which picks the likeliest of a row."""

    def apply_penalties(
        self,
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
        """See anychip.sample.penalties.apply_penalties."""
        (rows, vocabulary), penalized = logits.shape, len(index)
        copy = keep or logits.dtype != torch.float32
        out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device) if copy else logits
        programs, places = (rows, max(PLACES, power_of_two(penalized))) if copy else (penalized, 1)
        if programs:
            penalize[(programs, -(-vocabulary // BLOCK))](
                logits, out, index, slots, counts, _bytes(seen), presence, frequency, repetition, logits.stride(0),
                penalized, V=vocabulary, COPY=copy, PLACES=places, BLOCK=BLOCK,
                **self.chip.order,
            )  # fmt: skip
        return out

    def count_tokens(
        self,
        token_ids: torch.Tensor,
        index: torch.Tensor,
        slots: torch.Tensor,
        counts: torch.Tensor,
        seen: torch.Tensor,
    ) -> None:
        """See anychip.sample.penalties.count_tokens."""
        if len(index):
            count_newest[(-(-len(index) // ENTRIES),)](
                token_ids, index, slots, counts, _bytes(seen), len(index), V=counts.shape[1], BLOCK=ENTRIES,
                **self.chip.order,
            )  # fmt: skip

    def add_bias(self, logits: torch.Tensor, index: torch.Tensor, tokens: torch.Tensor, values: torch.Tensor) -> None:
        """See anychip.sample.masks.add_bias."""
        if len(index):
            add_entries[(-(-len(index) // ENTRIES),)](
                logits, index, tokens, values, logits.stride(0), len(index), BLOCK=ENTRIES, **self.chip.order
            )

    def mask_tokens(self, logits: torch.Tensor, index: torch.Tensor, bits: torch.Tensor) -> None:
        """See anychip.sample.masks.mask_tokens."""
        if len(index):
            mask_bits[(len(index), -(-logits.shape[1] // MASKED))](
                logits, index, bits, logits.stride(0), bits.stride(0), V=logits.shape[1], BLOCK=MASKED,
                **self.chip.order,
            )  # fmt: skip

    def gather_logprobs(
        self, logits: torch.Tensor, token_ids: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See anychip.sample.logprobs.gather_logprobs."""
        rows, vocabulary = logits.shape
        count, parts, device = min(count, vocabulary), -(-vocabulary // self.part), logits.device
        keys = torch.empty(rows, parts, dtype=torch.int64, device=device)
        sums = torch.empty(rows, parts, dtype=torch.float32, device=device)
        above = torch.empty(rows, parts, dtype=torch.int32, device=device)
        ids = torch.empty(rows, count + 1, dtype=torch.int32, device=device)
        values = torch.empty(rows, count + 1, dtype=torch.float32, device=device)
        ranks = torch.empty(rows, dtype=torch.int32, device=device)
        if rows:
            offer_best[(rows, parts)](
                logits, token_ids, keys, sums, above, logits.stride(0), V=vocabulary, BLOCK=self.part, **self.chip.order
            )
            score_best[(rows,)](
                logits, token_ids, keys, sums, above, ids, values, ranks, logits.stride(0), parts, count, V=vocabulary,
                PART=self.part, PARTS=power_of_two(parts), num_warps=self.chip.tuning.warps(self.threads),
                **self.chip.order,
            )  # fmt: skip
        return ids, values, ranks


def _bytes(flags: torch.Tensor) -> torch.Tensor:
    """Booleans as bytes, without a copy."""
    return flags.view(torch.uint8)
