"""Our paged attention as one of transformers' attention functions.

transformers calls the function registered under a model's `attn_implementation` in every layer, with the keyword
arguments that the model was called with: a step travels there as one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from anychip.models.step import StepContext
from anychip.ops.parts import Ops

NAME = "anychip"
"""Our entry in transformers' process-wide registry of attention functions."""

STEP = "anychip_step"
"""The keyword argument that carries an `Attends`."""

HONOURED = {"scaling", "sliding_window", "softcap", "s_aux", "sinks", "is_causal"}
"""Options of a layer that `AttentionCall` reads."""

INERT = {"dropout", "position_ids", "use_cache", "output_attentions", "output_hidden_states", "output_router_logits"}
"""Options that change nothing here: no dropout when serving, and positions are the step's."""


class HostingError(Exception):
    """A model does something our attention cannot follow; the message goes on from the model's name: "it ..."."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """How one layer attends."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    window: int | None
    softcap: float
    sinks: bool


class Attends(Protocol):
    """What a step is to the attention function: a forward pass, or the probe that looks how layers attend."""

    def attend(
        self, layer: int, call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: Any
    ) -> torch.Tensor:
        """q [T, N, D], k [T, M, D], v [T, M, Dv] of a layer -> [T, N, Dv]."""


@dataclass(frozen=True, slots=True)
class PagedStep:
    """A forward pass over paged caches."""

    ops: Ops
    context: StepContext

    def attend(
        self, layer: int, call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: Any
    ) -> torch.Tensor:
        """Write, then read. See `Attends.attend`."""
        cache, plan = self.context.caches[layer], self.context.plans[layer]
        self.ops.kv_write(k, v, cache, plan)
        return self.ops.paged_attention(q, cache, plan, call.scale, call.softcap, sinks)


@dataclass(frozen=True, slots=True)
class Recorder:
    """The probe: remembers each layer's call, computes nothing."""

    calls: dict[int, AttentionCall] = field(default_factory=dict)

    def attend(
        self, layer: int, call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: Any
    ) -> torch.Tensor:
        """See `Attends.attend`."""
        if layer in self.calls:
            raise HostingError(f"layer {layer} attends twice in a step.")
        self.calls[layer] = call
        return q.new_empty(*q.shape[:2], v.shape[-1])


def attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' signature: query [1, N, T, D], key [1, M, T, D], value [1, M, T, Dv] -> ([1, T, N, Dv], None)."""
    step: Attends | None = options.pop(STEP, None)
    if step is None:
        raise HostingError("it does not hand its keyword arguments on to its attention.")
    if attention_mask is not None:
        raise HostingError("it masks attention in a way of its own.")
    sinks = options.get("s_aux") if options.get("s_aux") is not None else options.get("sinks")
    call = read_call(module, query, key, value, options)
    layer: int = module.layer_idx  # type: ignore[assignment]
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return step.attend(layer, call, q, k, v, sinks).unsqueeze(0), None


def read_call(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: Mapping[str, Any]
) -> AttentionCall:
    """What the layer asks for. Raises `HostingError` for an option that is not known here."""
    unknown = [name for name, value in options.items() if value is not None and name not in HONOURED | INERT]
    if unknown:
        raise HostingError(f"its attention takes {', '.join(unknown)}, which ours does not.")
    causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise HostingError("its attention is not causal.")
    head_dim = query.shape[-1]
    scale = options.get("scaling")
    return AttentionCall(
        heads=query.shape[1],
        kv_heads=key.shape[1],
        head_dim=head_dim,
        value_dim=value.shape[-1],
        scale=head_dim**-0.5 if scale is None else float(scale),
        window=options.get("sliding_window") or None,
        softcap=float(options.get("softcap") or 0.0),
        sinks=options.get("s_aux") is not None or options.get("sinks") is not None,
    )


def register() -> None:
    """Enter our function in transformers' registry; doing so again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention_forward)
