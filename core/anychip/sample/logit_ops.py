"""The ops on logits before and beside the choice, which a platform may bring kernels for; each is torch's operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from anychip.ops.op import Op
from anychip.sample import logit_cases as cases
from anychip.sample.logprobs import gather_logprobs
from anychip.sample.masks import add_bias, mask_tokens
from anychip.sample.penalties import apply_penalties, count_tokens


class ApplyPenalties(Protocol):
    """Signature of `apply_penalties`."""

    def __call__(
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


class CountTokens(Protocol):
    """Signature of `count_tokens`."""

    def __call__(
        self,
        token_ids: torch.Tensor,
        index: torch.Tensor,
        slots: torch.Tensor,
        counts: torch.Tensor,
        seen: torch.Tensor,
    ) -> None:
        """See anychip.sample.penalties.count_tokens."""


class AddBias(Protocol):
    """Signature of `add_bias`."""

    def __call__(self, logits: torch.Tensor, index: torch.Tensor, tokens: torch.Tensor, values: torch.Tensor) -> None:
        """See anychip.sample.masks.add_bias."""


class MaskTokens(Protocol):
    """Signature of `mask_tokens`."""

    def __call__(self, logits: torch.Tensor, index: torch.Tensor, bits: torch.Tensor) -> None:
        """See anychip.sample.masks.mask_tokens."""


class GatherLogprobs(Protocol):
    """Signature of `gather_logprobs`."""

    def __call__(
        self, logits: torch.Tensor, token_ids: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See anychip.sample.logprobs.gather_logprobs."""


class LogitOps(Protocol):
    """What the sampler calls beside `SampleOps`; the bound `Ops` have it."""

    @property
    def apply_penalties(self) -> ApplyPenalties:
        """The bound `apply_penalties`."""

    @property
    def count_tokens(self) -> CountTokens:
        """The bound `count_tokens`."""

    @property
    def add_bias(self) -> AddBias:
        """The bound `add_bias`."""

    @property
    def mask_tokens(self) -> MaskTokens:
        """The bound `mask_tokens`."""

    @property
    def gather_logprobs(self) -> GatherLogprobs:
        """The bound `gather_logprobs`."""


@dataclass(frozen=True, slots=True)
class ReferenceLogitOps:
    """The references, unbound: for where tokens are chosen on the host."""

    apply_penalties: ApplyPenalties = apply_penalties
    count_tokens: CountTokens = count_tokens
    add_bias: AddBias = add_bias
    mask_tokens: MaskTokens = mask_tokens
    gather_logprobs: GatherLogprobs = gather_logprobs


LOGIT_OPS = (
    Op("apply_penalties", apply_penalties, cases.apply_penalties_cases, optional=True),
    Op("count_tokens", count_tokens, cases.count_tokens_cases, optional=True),
    Op("add_bias", add_bias, cases.add_bias_cases, optional=True),
    Op("mask_tokens", mask_tokens, cases.mask_tokens_cases, optional=True),
    Op("gather_logprobs", gather_logprobs, cases.gather_logprobs_cases, optional=True),
)
