"""A whole decoder stack as one native call a step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch import nn

from anychip.models.decoder import Attention, DecoderLayer, DecoderStack
from anychip.models.feed_forward import GatedMLP
from anychip.models.layers import Embedding, Linear, Norm
from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip_cpu.native.attention import NativePlan, unsupported
from anychip_cpu.native.library import Library
from anychip_cpu.native.linear import ACTIVATIONS, BLOCK


def lower_stack(module: nn.Module, spec: OpSpec, library: Library) -> nn.Module | None:
    """The stack in one call, or None where `module` is no plain decoder stack with packed weights."""
    if type(module) is not DecoderStack or unsupported(spec, library) or spec.softcap or spec.sinks:
        return None
    layers = list(module.layers)
    if not layers or not all(_is_plain(layer) for layer in layers):
        return None
    return NativeStack(module, spec, library)


def _is_plain(layer: nn.Module) -> bool:
    if type(layer) is not DecoderLayer or type(layer.self_attn) is not Attention or type(layer.mlp) is not GatedMLP:
        return False
    mlp, attention = layer.mlp, layer.self_attn
    linears = (attention.qkv, attention.o_proj, mlp.gate_up, mlp.down_proj)
    return (
        all(type(linear) is Linear and isinstance(linear.weight.prepared, torch.Tensor) for linear in linears)
        and mlp.gate_up.bias is None
        and mlp.down_proj.bias is None
        and mlp.gate_up.weight.shape[0] % (2 * BLOCK) == 0
        and mlp.activation in ACTIVATIONS
    )


class NativeStack(nn.Module):
    """Takes the place of a `DecoderStack`; between products everything stays in float32."""

    table: torch.Tensor

    def __init__(self, stack: DecoderStack, spec: OpSpec, library: Library) -> None:
        super().__init__()
        self.embed_tokens: Embedding = stack.embed_tokens
        self.register_buffer("table", stack.table.float().contiguous(), persistent=False)
        layers = [layer for layer in stack.layers if isinstance(layer, DecoderLayer)]
        mlp = _network(layers[0])
        shape = [spec.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim, mlp.down_proj.weight.shape[1]]
        shape.append(ACTIVATIONS[mlp.activation])
        tensors = [tensor for layer in layers for tensor in _tensors(layer)]
        self._number: int = library.ops.new_stack.default(shape, stack.norm.eps, tensors, _wide(stack.norm.weight))
        self._run = library.ops.run_stack.default
        weakref.finalize(self, library.ops.drop_stack.default, self._number)

    def forward(self, token_ids: torch.Tensor, step: StepContext) -> torch.Tensor:
        """[T] -> [T, H], or [L, H] of `step.wanted`."""
        plans: dict[int, int] = {}
        distinct: list[NativePlan] = []
        for plan in step.plans:
            if id(plan) not in plans:
                plans[id(plan)] = len(distinct)
                distinct.append(plan)
        hidden: torch.Tensor = self._run(
            self._number,
            self.embed_tokens(token_ids),
            step.positions,
            self.table,
            distinct[0].query_start,
            [plane for cache in step.caches for plane in (cache.k, cache.v)],
            [plan.table for plan in distinct],
            [plans[id(plan)] for plan in step.plans],
            [plan.window for plan in step.plans],
            step.wanted,
        )
        return hidden


def _tensors(layer: DecoderLayer) -> Iterator[torch.Tensor]:
    """In the order of `Layer` in stack.h."""
    attention, mlp = layer.self_attn, _network(layer)
    yield _wide(layer.input_layernorm.weight)
    yield _packed(attention.qkv)
    yield _wide(attention.qkv.bias)
    yield _norm(attention.q_norm)
    yield _norm(attention.k_norm)
    yield _packed(attention.o_proj)
    yield _wide(attention.o_proj.bias)
    yield _wide(layer.post_attention_layernorm.weight)
    yield _packed(mlp.gate_up)
    yield _packed(mlp.down_proj)


def _network(layer: DecoderLayer) -> GatedMLP:
    assert isinstance(layer.mlp, GatedMLP), "checked by lower_stack"
    return layer.mlp


def _packed(linear: Linear) -> torch.Tensor:
    packed = linear.weight.prepared
    assert isinstance(packed, torch.Tensor), "checked by lower_stack"
    return packed


def _norm(norm: Norm | None) -> torch.Tensor:
    return _wide(None if norm is None else norm.weight)


def _wide(tensor: torch.Tensor | None) -> torch.Tensor:
    """A vector in float32; an empty one stands for none."""
    return torch.empty(0) if tensor is None else tensor.detach().float().contiguous()
