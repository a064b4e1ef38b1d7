"""The feed-forward network of a decoder layer: one, or a mixture of experts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from anychip.models.decoder_config import DecoderConfig, ExpertsConfig
from anychip.models.layers import Linear
from anychip.ops.composite import gated
from anychip.ops.parts import Ops


class GatedMLP(nn.Module):
    """Gated feed-forward network (Shazeer, 2020)."""

    def __init__(self, config: DecoderConfig, ops: Ops, dtype: torch.dtype, layer: int) -> None:
        super().__init__()
        self.ops, self.activation = ops, config.activation
        inner = config.intermediate_size
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up = Linear(ops, config.hidden_size, parts, dtype, config.mlp_bias, role=config.role(layer, "inner"))
        outer = {"down_proj": config.hidden_size}
        self.down_proj = Linear(ops, inner, outer, dtype, config.mlp_bias, role=config.role(layer, "inner"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, H] -> [T, H]."""
        if self.gate_up.bias is None:
            return self.ops.gated_mlp(x, self.gate_up.weight, self.down_proj.weight, self.activation)
        result: torch.Tensor = self.down_proj(gated(self.ops, self.gate_up(x), self.activation))
        return result


class Experts(nn.Module):
    """A router and the experts it chooses from (Shazeer et al., 2017).

    Where the config has a shared one, that sees every token, scaled by a gate of its own (Qwen 2 MoE).
    """

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig, ops: Ops, dtype: torch.dtype, layer: int) -> None:
        super().__init__()
        self.ops, self.activation = ops, config.activation
        self.per_token, self.renormalize = experts.per_token, experts.renormalize
        hidden, count, size = config.hidden_size, experts.count, experts.size
        self.router = Linear(ops, hidden, {"gate": count}, dtype, bias=False, exact=True)
        inner = {f"experts.{index}.{name}": size for index in range(count) for name in ("gate_proj", "up_proj")}
        self.gate_up = Linear(ops, hidden, inner, dtype, bias=False, matrices=count)
        outer = {f"experts.{index}.down_proj": hidden for index in range(count)}
        self.down = Linear(ops, size, outer, dtype, bias=False, matrices=count)
        self.shared_expert, self.shared_gate = None, None
        if experts.shared_size:
            shared = replace(config, intermediate_size=experts.shared_size, mlp_bias=False)
            self.shared_expert = GatedMLP(shared, ops, dtype, layer)
            self.shared_gate = Linear(ops, hidden, {"shared_expert_gate": 1}, dtype, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, H] -> [T, H]."""
        shares, chosen = self.ops.route(self.router(x), self.per_token, self.renormalize)
        y = self.ops.experts(x, self.gate_up.weight, self.down.weight, shares, chosen, self.activation)
        if self.shared_expert is None or self.shared_gate is None:
            return y
        shared: torch.Tensor = torch.sigmoid(self.shared_gate(x)) * self.shared_expert(x)
        return y + shared


def feed_forward(config: DecoderConfig, ops: Ops, dtype: torch.dtype, layer: int) -> GatedMLP | Experts:
    """The layer's experts, or its one network."""
    if config.experts is None or layer not in config.experts.layers:
        return GatedMLP(config, ops, dtype, layer)
    return Experts(config, config.experts, ops, dtype, layer)
