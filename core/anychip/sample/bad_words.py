"""Bad words: the last token of each is masked while the newest tokens spell the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from anychip.engine.batch import Int32
from anychip.sample.masks import Entries
from anychip.sample.send import Send

ANY = -1
"""In a word's prefix: matches every token (padding of shorter words)."""
NOTHING = -2
"""In a tail: a place before the first token."""


@dataclass(frozen=True, slots=True)
class BadWords:
    """Bad words of one batch: the last token of each as entries, the tokens before it in `prefix` [E, W]."""

    entries: Entries
    prefix: torch.Tensor

    def matches(self, tails: torch.Tensor) -> torch.Tensor:
        """[E] whether the newest tokens `tails` [L, W] of a word's row spell all but its last token."""
        return ((self.prefix == ANY) | (self.prefix == tails[self.entries.index])).all(-1)


class BadWordTable:
    """Words of the rows that ban any, and the newest tokens of every row, prompt included."""

    def __init__(self, max_rows: int, device: torch.device, send: Send) -> None:
        self._send = send
        self.tails = torch.full((max_rows, 0), NOTHING, dtype=torch.int64, device=device)
        self._rows: dict[int, tuple[tuple[int, ...], ...]] = {}

    def put(self, row: int, words: tuple[tuple[int, ...], ...], history: Int32) -> None:
        """Set a row's words; `history` is its prompt and output so far."""
        self._rows[row] = words
        missing = max(len(word) for word in words) - 1 - self.tails.shape[1]
        if missing > 0:
            empty = self.tails.new_full((len(self.tails), missing), NOTHING)
            self.tails = torch.cat([empty, self.tails], dim=1)
        width = self.tails.shape[1]
        tail = np.full(width, NOTHING, np.int64)
        newest = history[max(0, len(history) - width) :]
        tail[width - len(newest) :] = newest
        self.tails[row] = self._send(tail)

    def drop(self, row: int) -> None:
        """Forget a row."""
        self._rows.pop(row, None)

    def append(self, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Note one sampled token a row. rows [B] and token_ids [B] int64."""
        if self.tails.shape[1]:
            self.tails[rows] = torch.cat([self.tails[rows, 1:], token_ids.unsqueeze(-1)], dim=1)

    def select(self, index_of_row: npt.NDArray[np.int64]) -> BadWords:
        """Words of a batch; `index_of_row` [max_rows] is below 0 for rows outside it."""
        listed = [(index_of_row[row], word) for row, words in self._rows.items() for word in words]
        listed = [(index, word) for index, word in listed if index >= 0]
        prefix = np.full((len(listed), self.tails.shape[1]), ANY, np.int64)
        for line, (_, word) in zip(prefix, listed, strict=True):
            line[len(line) - len(word) + 1 :] = word[:-1]
        index, last = (np.array(column, np.int64) for column in ([i for i, _ in listed], [w[-1] for _, w in listed]))
        entries = Entries(*(self._send(part) for part in (index, last, np.zeros_like(last))))
        return BadWords(entries, self._send(prefix))
