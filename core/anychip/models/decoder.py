"""The pre-norm decoder of the Llama lineage (Touvron et al., 2023), which several families share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from anychip.models.decoder_config import DecoderConfig
from anychip.models.feed_forward import feed_forward
from anychip.models.layers import Embedding, Linear, Norm
from anychip.models.model import Model
from anychip.models.rotary import rotary_table
from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.contract import KVSpec, Plane


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderConfig, ops: Ops, dtype: torch.dtype, layer: int) -> None:
        super().__init__()
        self.ops, self.layer, self.head_dim, self.eps = ops, layer, config.head_dim, config.eps
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        self.qkv = Linear(ops, config.hidden_size, parts, dtype, config.qkv_bias, role="attention")
        outer = {"o_proj": config.hidden_size}
        self.o_proj = Linear(ops, queries, outer, dtype, config.output_bias, role=config.role(layer, "attended"))
        self.q_norm = Norm(ops, config.head_dim, config.eps, dtype) if config.head_norms else None
        self.k_norm = Norm(ops, config.head_dim, config.eps, dtype) if config.head_norms else None

    def forward(
        self, projected: torch.Tensor, table: torch.Tensor, step: StepContext, wanted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Projections [T, (N + 2M) * D] of N query and M key heads -> [T, H], or [L, H] of the `wanted` tokens."""
        tokens = projected.shape[0]
        q, k, v = (part.view(tokens, -1, self.head_dim) for part in self.qkv.split(projected))
        cache, plan = step.caches[self.layer], step.plans[self.layer]
        q_norm = None if self.q_norm is None else self.q_norm.weight
        k_norm = None if self.k_norm is None else self.k_norm.weight
        q = self.ops.qk_norm_rope_kv_write(q, k, v, q_norm, k_norm, self.eps, step.positions, table, cache, plan)
        attended = self.ops.paged_attention(q, cache, plan, self.head_dim**-0.5).flatten(1)
        result: torch.Tensor = self.o_proj(_rows(self.ops, attended, wanted))
        return result


class DecoderLayer(nn.Module):
    """Attention, then the feed-forward network, each on the normalized residual stream."""

    def __init__(self, config: DecoderConfig, ops: Ops, dtype: torch.dtype, layer: int) -> None:
        super().__init__()
        self.ops = ops
        self.input_layernorm = Norm(ops, config.hidden_size, config.eps, dtype)
        self.self_attn = Attention(config, ops, dtype, layer)
        self.post_attention_layernorm = Norm(ops, config.hidden_size, config.eps, dtype)
        self.mlp = feed_forward(config, ops, dtype, layer)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        table: torch.Tensor,
        step: StepContext,
        wanted: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x and residual [T, H], whose sum is the stream -> the same for the next layer, or of `wanted` tokens only."""
        norm, qkv = self.input_layernorm, self.self_attn.qkv
        projected, residual = self.ops.norm_linear(x, residual, norm.weight, norm.eps, qkv.weight, qkv.bias)
        x = self.self_attn(projected, table, step, wanted)
        norm = self.post_attention_layernorm
        x, residual = self.ops.add_rms_norm(x, _rows(self.ops, residual, wanted), norm.weight, norm.eps)
        return self.mlp(x), residual


def _rows(ops: Ops, x: torch.Tensor, wanted: torch.Tensor | None) -> torch.Tensor:
    """x [T, ..], or its `wanted` rows [L, ..]."""
    return x if wanted is None else ops.embedding(wanted, x)


class DecoderStack(nn.Module):
    """Embedding, layers, last norm. `length`: positions of the rotary table."""

    table: torch.Tensor

    def __init__(self, config: DecoderConfig, ops: Ops, dtype: torch.dtype, length: int) -> None:
        super().__init__()
        self.ops = ops
        self.embed_tokens = Embedding(ops, config.vocab_size, config.hidden_size, dtype)
        self.layers = nn.ModuleList(DecoderLayer(config, ops, dtype, layer) for layer in range(config.num_layers))
        self.norm = Norm(ops, config.hidden_size, config.eps, dtype)
        self.register_buffer("table", rotary_table(config.rope, length), persistent=False)

    def forward(self, token_ids: torch.Tensor, step: StepContext) -> torch.Tensor:
        """[T] -> [T, H], or [L, H] of `step.wanted`: after the last layer's attention only those are computed."""
        x: torch.Tensor = self.embed_tokens(token_ids)
        residual: torch.Tensor | None = None
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            x, residual = layer(x, residual, self.table, step, step.wanted if number == last else None)
        assert residual is not None, "a model without layers"
        return self.ops.add_rms_norm(x, residual, self.norm.weight, self.norm.eps)[0]


class DecoderModel(Model):
    """A causal language model; a family says how to read its config."""

    def __init__(
        self, config: Mapping[str, Any], ops: Ops, dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        super().__init__(config, ops, dtype)
        shape = self.read(config)
        self.vocab_size, self.max_model_len = shape.vocab_size, shape.rope.max_model_len
        self.hidden_size = shape.hidden_size
        self.kv_specs = tuple(kv_spec(shape, window, dtype) for window in shape.windows)
        self.model = DecoderStack(shape, ops, dtype, min(max_model_len or self.max_model_len, self.max_model_len))
        outer = {"lm_head": shape.vocab_size}
        self.lm_head = Linear(ops, shape.hidden_size, outer, dtype, bias=False, role="output")
        self.ties = {"lm_head": "model.embed_tokens"} if shape.tied else {}

    @staticmethod
    @abstractmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """The family's shape out of config.json."""

    @classmethod
    def op_spec(cls, config: Mapping[str, Any], dtype: str, block_size: int) -> OpSpec:
        """See `Model.op_spec`."""
        return cls.read(config).op_spec(dtype, block_size)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """See `Model.forward`."""
        hidden: torch.Tensor = self.model(token_ids, step)
        return hidden

    def drop_output(self) -> None:
        """See `Model.drop_output`."""
        del self.lm_head
        self.ties = {}

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `Model.logits`."""
        scores: torch.Tensor = self.lm_head(hidden)
        return scores


def kv_spec(config: DecoderConfig, window: int | None, dtype: torch.dtype) -> KVSpec:
    """What one layer caches: keys and values of `window` tokens, or of all."""
    shape, name = (config.num_kv_heads, config.head_dim), str(dtype).removeprefix("torch.")
    planes = (Plane("k", shape, name), Plane("v", shape, name))
    return KVSpec("full" if window is None else "sliding", planes, window)
