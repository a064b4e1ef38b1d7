"""Fields that name single tokens: logit_bias, allowed_token_ids, min_tokens.

Each is a table of (row, token, value) on the host; those of a batch's rows go to the device when its rows change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from anychip.engine.batch import Float32, Int32
from anychip.sample.send import Send


@dataclass(frozen=True, slots=True)
class Entries:
    """Triples of one batch on the device: `index` [E] into its rows, `token` [E], `value` [E]."""

    index: torch.Tensor
    token: torch.Tensor
    value: torch.Tensor


class EntryTable:
    """(token, value) pairs of the rows that have any."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._rows: dict[int, tuple[Int32, Float32]] = {}
        self._flat: tuple[Int32, Int32, Float32] | None = None

    def put(self, row: int, tokens: tuple[int, ...], values: tuple[float, ...]) -> None:
        """Set a row's pairs."""
        self._rows[row] = np.array(tokens, np.int32), np.array(values, np.float32)
        self._flat = None

    def drop(self, row: int) -> None:
        """Forget a row."""
        if self._rows.pop(row, None) is not None:
            self._flat = None

    def select(self, index_of_row: npt.NDArray[np.int64]) -> Entries:
        """Those of a batch; `index_of_row` [max_rows] is below 0 for rows outside it."""
        rows, tokens, values = self._flat = self._flat or self._flatten()
        index = index_of_row[rows]
        kept = index >= 0
        return Entries(
            self._send(index[kept]),
            self._send(tokens[kept].astype(np.int64)),
            self._send(values[kept]),
        )

    def _flatten(self) -> tuple[Int32, Int32, Float32]:
        lengths = [len(tokens) for tokens, _ in self._rows.values()]
        rows = np.repeat(np.array(list(self._rows), np.int32), lengths)
        tokens = np.concatenate([np.zeros(0, np.int32), *(tokens for tokens, _ in self._rows.values())])
        values = np.concatenate([np.zeros(0, np.float32), *(values for _, values in self._rows.values())])
        return rows, tokens, values


def keep_only(logits: torch.Tensor, entries: Entries, restricted: torch.Tensor) -> None:
    """Mask in place all but the entries' tokens in the `restricted` rows (indices [A]) of logits [L, V]."""
    values = logits[entries.index, entries.token]
    logits[restricted] = float("-inf")
    logits[entries.index, entries.token] = values


def forbid(active: torch.Tensor) -> torch.Tensor:
    """What `add_bias` has to add to mask entries' tokens where `active` [E] holds: [E] float32."""
    return torch.where(active, float("-inf"), 0.0)


def add_bias(logits: torch.Tensor, index: torch.Tensor, tokens: torch.Tensor, values: torch.Tensor) -> None:
    """Add `values` [E] to logits [S, V] in place, all float32, at rows `index` [E] and `tokens` [E] int64.

    A token may come twice in a row if it is forbidden, with -inf.
    """
    # Adding is safe where one token is listed twice; writing would be a race.
    logits.index_put_((index, tokens), values, accumulate=True)


def mask_tokens(logits: torch.Tensor, index: torch.Tensor, bits: torch.Tensor) -> None:
    """Leave in rows `index` [M] int64, distinct, only tokens whose bit is set. logits [S, V] float32, in place.

    `bits` [M, ceil(V / 32)] int32, of 32 tokens each, the lowest bit first; all others become -inf.
    """
    single = 1 << torch.arange(8, dtype=torch.uint8, device=bits.device)
    forbidden = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    forbidden[index] = (bits.view(torch.uint8).unsqueeze(-1) & single).flatten(1)[:, : logits.shape[1]] == 0
    logits.masked_fill_(forbidden, float("-inf"))
