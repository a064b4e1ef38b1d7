"""From a step's tensors on the device to its `StepResult` on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anychip.engine.batch import NOTHING_ALLOWED, Logprobs, Pooled, PromptLogprobs, StepResult
from anychip.plugin.contract import Pending
from anychip.runner.inputs import Wanted
from anychip.sample.logprobs import DeviceLogprobs
from anychip.sample.sampler import Sampled
from anychip.sample.take import NOTHING_LEFT

if TYPE_CHECKING:
    import numpy.typing as npt

BROKEN_LOGITS = "The model produced logits that are not finite numbers."
BROKEN_VECTOR = "The model produced a vector that is not of finite numbers."

FetchTensor = Callable[[torch.Tensor], Pending["npt.NDArray[Any]"]]


@dataclass(frozen=True, slots=True)
class _PendingLogprobs:
    token_ids: Pending[npt.NDArray[Any]]
    values: Pending[npt.NDArray[Any]]
    ranks: Pending[npt.NDArray[Any]]

    def result(self) -> Logprobs:
        return Logprobs(self.token_ids.result(), self.values.result(), self.ranks.result())


class PendingResult(Pending[StepResult]):
    """A step's result on its way to the host; the copies start when it is made."""

    def __init__(
        self,
        wanted: Wanted,
        sampled: Sampled | None,
        scored: Sequence[DeviceLogprobs],
        vectors: torch.Tensor | None,
        fetch: FetchTensor,
    ) -> None:
        self._wanted = wanted
        self._token_ids = None if sampled is None else fetch(sampled.token_ids)
        logprobs = None if sampled is None else sampled.logprobs
        self._logprobs = None if logprobs is None else _start(logprobs, fetch)
        self._scored = [_start(part, fetch) for part in scored]
        self._vectors = None if vectors is None else fetch(vectors)

    def result(self) -> StepResult:
        """Wait for the copies. Rows whose logits or vectors are not finite come as errors, not as results."""
        errors: dict[int, str] = {}
        prompt = self._prompt_logprobs(errors)
        pooled = self._pooled(errors)
        if self._token_ids is None:
            return StepResult(prompt_logprobs=prompt, pooled=pooled, errors=errors)
        logprobs = None if self._logprobs is None else self._logprobs.result()
        result = sampled_result(self._wanted, self._token_ids.result(), logprobs)
        return replace(result, prompt_logprobs=prompt, pooled=pooled, errors={**errors, **result.errors})

    def _pooled(self, errors: dict[int, str]) -> Pooled | None:
        if self._vectors is None:
            return None
        rows, vectors = self._wanted.pooled_rows, self._vectors.result()
        good = np.isfinite(vectors).all(axis=1)
        errors.update(dict.fromkeys(rows[~good].tolist(), BROKEN_VECTOR))
        return Pooled(rows[good], vectors[good])

    def _prompt_logprobs(self, errors: dict[int, str]) -> PromptLogprobs | None:
        if not self._scored:
            return None
        parts = [part.result() for part in self._scored]
        logprobs = Logprobs(
            np.concatenate([part.token_ids for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.ranks for part in parts]),
        )
        rows, positions = self._wanted.scored_rows, self._wanted.scored_positions
        broken = np.unique(rows[np.isnan(logprobs.values[:, 0])])
        if len(broken):
            errors.update(dict.fromkeys(broken.tolist(), BROKEN_LOGITS))
            good = ~np.isin(rows, broken)
            rows, positions, logprobs = rows[good], positions[good], _take(logprobs, good)
        return PromptLogprobs(rows, positions, logprobs)


def sampled_result(wanted: Wanted, token_ids: npt.NDArray[Any], logprobs: Logprobs | None = None) -> StepResult:
    """The result of a step that sampled `token_ids` [S], which it copies; negative ids say why a row has none."""
    rows, ids = wanted.sampled_rows, token_ids.astype(np.int32)
    if min(ids.tolist()) >= 0:
        return StepResult(rows, wanted.token_start, ids, logprobs)
    good = ids >= 0
    failed = zip(rows[~good].tolist(), ids[~good].tolist(), strict=True)
    errors = {row: NOTHING_ALLOWED if code == NOTHING_LEFT else BROKEN_LOGITS for row, code in failed}
    start = wanted.token_start[: np.count_nonzero(good) + 1]
    return StepResult(rows[good], start, ids[good], None if logprobs is None else _take(logprobs, good), errors=errors)


def _start(logprobs: DeviceLogprobs, fetch: FetchTensor) -> _PendingLogprobs:
    return _PendingLogprobs(fetch(logprobs.token_ids), fetch(logprobs.values), fetch(logprobs.ranks))


def _take(logprobs: Logprobs, where: npt.NDArray[np.bool_]) -> Logprobs:
    return Logprobs(logprobs.token_ids[where], logprobs.values[where], logprobs.ranks[where])
