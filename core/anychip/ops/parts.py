"""The bound ops: one attribute each, typed, resolved once at load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from anychip.ops.attention import AttentionInputs
from anychip.ops.op import Binding
from anychip.ops.ragged import Ragged
from anychip.plugin.contract import KVSpec
from anychip.sample.logit_ops import AddBias, ApplyPenalties, CountTokens, GatherLogprobs, MaskTokens
from anychip.sample.op import Greedy, Sample, TakeDrawn, TakeHighest
from anychip.weights.weight import Weight


class PagedAttention(Protocol):
    """Signature of `paged_attention`."""

    def __call__(
        self, q: Tensor, cache: Any, plan: Any, scale: float, softcap: float = 0.0, sinks: Tensor | None = None
    ) -> Tensor:
        """See anychip.ops.attention.paged_attention."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The plain ops: what composites are made of. Caches and plans belong to whoever provides the attention family."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    layer_norm: Callable[[Tensor, Tensor | None, Tensor, Tensor, float], Tensor]
    silu_mul: Callable[[Tensor], Tensor]
    gelu_mul: Callable[[Tensor, str], Tensor]
    rope: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    linear: Callable[[Tensor, Weight, Tensor | None], Tensor]
    embedding: Callable[[Tensor, Tensor], Tensor]
    route: Callable[[Tensor, int, bool], tuple[Tensor, Tensor]]
    experts: Callable[[Tensor, Weight, Weight, Tensor, Tensor, str], Tensor]
    new_cache: Callable[[KVSpec, int, int, torch.device | str], Any]
    copy_blocks: Callable[[Any, Tensor, Tensor], None]
    plan_attention: Callable[[AttentionInputs, KVSpec, int], Any]
    kv_write: Callable[[Tensor, Tensor, Any, Any], None]
    paged_attention: PagedAttention
    ragged_attention: Callable[[Tensor, Tensor, Tensor, Ragged, float], Tensor]
    greedy: Greedy
    sample: Sample
    apply_penalties: ApplyPenalties
    count_tokens: CountTokens
    add_bias: AddBias
    mask_tokens: MaskTokens
    gather_logprobs: GatherLogprobs


@dataclass(frozen=True, slots=True)
class Ops(Parts):
    """All ops of one loaded model, and how each was resolved."""

    norm_linear: Callable[[Tensor, Tensor | None, Tensor, float, Weight, Tensor | None], tuple[Tensor, Tensor]]
    qk_norm_rope_kv_write: Callable[
        [Tensor, Tensor, Tensor, Tensor | None, Tensor | None, float, Tensor, Tensor, Any, Any], Tensor
    ]
    gated_mlp: Callable[[Tensor, Weight, Weight, str], Tensor]
    take_highest: TakeHighest
    take_drawn: TakeDrawn
    bindings: tuple[Binding, ...] = ()
