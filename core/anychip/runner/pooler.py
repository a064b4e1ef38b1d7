"""From hidden states to one vector a prompt, also when the prompt comes in chunks; and which text a token is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from anychip.engine.batch import AdmittedRow
from anychip.models.pooled import PooledModel
from anychip.runner.inputs import DeviceBatch
from anychip.sample.send import Send

ONE_TEXT = 2**31 - 1


class Pooler:
    """Pooling of one model. What a later chunk needs of earlier ones is kept by stable row, in float32."""

    def __init__(self, model: PooledModel, max_rows: int, device: torch.device) -> None:
        self._model = model
        kept = 0 if model.pooling == "last" else max_rows
        self._kept = torch.zeros(kept, model.hidden_size, dtype=torch.float32, device=device)

    def pool(self, hidden: torch.Tensor, inputs: DeviceBatch) -> torch.Tensor | None:
        """Take in a step's hidden states [T, H]; vectors [V, W] of the prompts that are complete, None without any."""
        ends = inputs.pooled_at.long()
        if self._model.pooling == "last":
            return self._model.vectors(hidden[ends].float()) if len(ends) else None
        start, rows = inputs.ragged.start, inputs.rows.long()
        firsts = start[:-1].long()
        fresh = (inputs.positions[firsts] == 0).unsqueeze(1)
        if self._model.pooling == "cls":
            self._kept[rows] = torch.where(fresh, hidden[firsts].float(), self._kept[rows])
        else:
            sums = torch.segment_reduce(hidden.float(), "sum", offsets=start.long())
            self._kept[rows] = torch.where(fresh, sums, self._kept[rows] + sums)
        if not len(ends):
            return None
        pooled = self._kept[rows[torch.bucketize(ends, start[1:], right=True)]]
        if self._model.pooling == "mean":
            pooled = pooled / (inputs.positions[ends] + 1).unsqueeze(1)
        return self._model.vectors(pooled)


class TextStarts:
    """Where the second of two texts begins in each row."""

    def __init__(self, max_rows: int, send: Send) -> None:
        self._send = send
        self._starts = send(np.full(max_rows, ONE_TEXT, np.int32))

    def admit(self, admitted: Sequence[AdmittedRow]) -> None:
        """Take rows up."""
        if admitted:
            starts = [ONE_TEXT if row.second_text is None else row.second_text for row in admitted]
            rows = self._send(np.array([row.row for row in admitted], np.int64))
            self._starts[rows] = self._send(np.array(starts, np.int32))

    def text_ids(self, inputs: DeviceBatch) -> torch.Tensor:
        """[T] int32: 0 for a token of the first text, 1 for one of the second."""
        start = inputs.ragged.start
        tokens = torch.arange(len(inputs.positions), device=start.device, dtype=torch.int32)
        rows = inputs.rows.long()[torch.bucketize(tokens, start[1:], right=True)]
        return (inputs.positions >= self._starts[rows]).int()
