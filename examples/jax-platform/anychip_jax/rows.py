"""What the host knows of each stable row, and a step's sampling plan made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from anychip.plugin import AdmittedRow, Batch, Masks, uniforms
from anychip_jax.sampling import NUMBERS, Plan, new_state, set_lines


class Rows:
    """Requests by row, and their state on the device, which has one row more: padding is noted there."""

    def __init__(self, rows: int, vocab: int) -> None:
        self.padding, self.vocab = rows, vocab
        self.state = new_state(rows + 1, vocab)
        self.requests: dict[int, AdmittedRow] = {}

    def admit(self, batch: Batch) -> None:
        """Forget rows and take others up."""
        for row in batch.retired:
            del self.requests[row]
        for admitted in batch.admitted:
            self.requests[admitted.row] = admitted
            self.state = set_lines(self.state, admitted.row, self._lines(admitted))

    def refused(self, rows: list[int]) -> dict[int, str]:
        """Rows that ask for what is not done here, each with a sentence."""
        long = [row for row in rows if any(len(word) > 1 for word in self.requests[row].sampling.bad_words)]
        return dict.fromkeys(long, "The example in JAX takes bad_words of one token only.")

    def plan(self, rows: Any, positions: Any, size: int, masks: Masks | None) -> tuple[Plan, bool, bool, int]:
        """What S `rows` ask for, whose next tokens have `positions`, padded to `size`; then what `sample` has to do."""
        requests = [self.requests[row] for row in rows.tolist()]
        asked = [request.sampling for request in requests]
        outputs = positions - np.array([request.prompt_length for request in requests])
        early = [index for index, each in enumerate(asked) if outputs[index] < each.min_tokens]
        forbidden = [(index, token) for index in early for token in asked[index].stop_token_ids]
        numbers = np.array([[getattr(each, name) for name in NUMBERS] for each in asked], np.float32)
        plan = Plan(
            padded(rows, size, self.padding),
            padded(numbers, size).T[:, :, None],
            padded(uniforms(np.array([each.seed for each in asked]), outputs), size),
            padded(np.array(forbidden, np.int32).reshape(-1, 2), bucket(len(forbidden)), size),
            None if masks is None else _bits(rows, masks, size),
        )
        drawing = [each for each in asked if each.temperature > 0]
        truncates = any(each.top_k > 0 or each.top_p < 1 for each in drawing)
        counts = [each.logprobs for each in asked if each.logprobs is not None]
        return plan, bool(drawing), truncates, min(bucket(max(counts)), self.vocab) if counts else -1

    def _lines(self, admitted: AdmittedRow) -> dict[str, Any]:
        """What the device has to know of a row to edit its logits."""
        sampling, bias = admitted.sampling, np.zeros(self.vocab, np.float32)
        if sampling.allowed_token_ids is not None:
            bias[:] = -np.inf
            bias[list(sampling.allowed_token_ids)] = 0
        for token, value in sampling.logit_bias:
            bias[token] += value
        bias[[word[0] for word in sampling.bad_words if word]] = -np.inf
        given = (admitted.prompt_token_ids, admitted.output_token_ids)
        prompt, output = (np.bincount([] if ids is None else ids, minlength=self.vocab) for ids in given)
        return {"bias": bias, "counts": output.astype(np.int32), "seen": (prompt + output).astype(np.int32)}


def bucket(count: int) -> int:
    """8, 32, 128 ...: few programs, none of which does more than four times the work."""
    return 8 if count <= 8 else 4 * bucket(-(-count // 4))


def padded(values: Any, size: int, fill: int = 0) -> Any:
    """A new array of `size` entries: those given, then `fill`."""
    out = np.full((size, *values.shape[1:]), fill, values.dtype)
    out[: len(values)] = values
    return out


def _bits(rows: Any, masks: Masks, size: int) -> Any:
    bits = np.full((size, masks.bits.shape[1]), -1, np.int32)
    bits[(rows == masks.rows[:, None]).argmax(1)] = masks.bits
    return bits
