"""Token ids to vectors, and logits to token ids, through the library."""

from __future__ import annotations

import torch

from anychip_cpu.native.library import Library


class NativeTokens:
    """The ops that call the library."""

    def __init__(self, library: Library) -> None:
        ops = library.ops
        self._embedding, self._greedy, self._sample = ops.embedding.default, ops.greedy.default, ops.sample.default
        self._take_highest, self._take_drawn = ops.take_highest.default, ops.take_drawn.default

    def embedding(self, token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """See anychip.ops.linear.embedding."""
        rows: torch.Tensor = self._embedding(token_ids, table)
        return rows

    def greedy(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.greedy."""
        ids, highest = self._greedy(logits)
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
        """See anychip.sample.choose.sample; `candidates` is of no use where nothing is sorted."""
        parameters = (part.contiguous() for part in (temperature, top_k, top_p, min_p, numbers))
        ids, highest = self._sample(logits, *parameters)
        return ids, highest

    def take_highest(self, logits: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
        """See anychip.sample.take.take_highest."""
        ids: torch.Tensor = self._take_highest(logits, rows, newest)
        return ids

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
        """See anychip.sample.take.take_drawn; `candidates` is of no use where nothing is sorted."""
        parameters = (part.contiguous() for part in (temperature, top_k, top_p, min_p))
        ids: torch.Tensor = self._take_drawn(logits.float(), keys, positions, *parameters, rows, newest)
        return ids
