"""The post-norm encoder of BERT (Devlin et al., 2019), which several families share."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from anychip.models.encoder_config import EncoderConfig
from anychip.models.layers import Embedding, LayerNorm, Linear
from anychip.models.model import Model
from anychip.models.step import StepContext
from anychip.ops.composite import GELU
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.contract import KVSpec
from anychip.plugin.tasks import PoolingKind

SUPERFLUOUS = re.compile(r"^(cls|lm_head|pooler|vocab_\w+|qa_outputs)\.|(^|\.)position_ids$")
"""Heads for training, and tables that are computed."""


class Embeddings(nn.Module):
    """The sum of a token's own vector, its position's, and its text's, normalized."""

    def __init__(self, config: EncoderConfig, ops: Ops, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops, self.first_position = ops, config.first_position
        self.tokens = Embedding(ops, config.vocab_size, config.hidden_size, dtype)
        self.positions = Embedding(ops, config.positions, config.hidden_size, dtype)
        self.texts = Embedding(ops, config.texts, config.hidden_size, dtype) if config.texts else None
        self.norm = LayerNorm(ops, config.hidden_size, config.eps, dtype)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """[T] -> [T, H]."""
        x: torch.Tensor = self.tokens(token_ids) + self.positions(positions + self.first_position)
        if self.texts is not None:
            x = x + (self.texts.weight[0] if step.text_ids is None else self.texts(step.text_ids))
        normed: torch.Tensor = self.norm(x)
        return normed


class EncoderLayer(nn.Module):
    """Attention in both directions, then the feed-forward network; each sum is normalized."""

    def __init__(self, config: EncoderConfig, ops: Ops, dtype: torch.dtype) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.ops, self.heads, self.activation = ops, config.num_heads, config.activation
        self.qkv = Linear(ops, size, {"query": size, "key": size, "value": size}, dtype, bias=True)
        self.output = Linear(ops, size, {"output": size}, dtype, bias=True)
        self.attention_norm = LayerNorm(ops, size, config.eps, dtype)
        self.up = Linear(ops, size, {"up": inner}, dtype, bias=True)
        self.down = Linear(ops, inner, {"down": size}, dtype, bias=True)
        self.norm = LayerNorm(ops, size, config.eps, dtype)

    def forward(self, x: torch.Tensor, step: StepContext) -> torch.Tensor:
        """[T, H] -> [T, H]."""
        assert step.ragged is not None, "an encoder needs to know which tokens belong together"
        q, k, v = (part.unflatten(1, (self.heads, -1)) for part in self.qkv.split(self.qkv(x)))
        attended = self.ops.ragged_attention(q, k, v, step.ragged, q.shape[-1] ** -0.5)
        x = self.attention_norm(self.output(attended.flatten(1)), x)
        result: torch.Tensor = self.norm(self.down(activate(self.up(x), self.activation)), x)
        return result


class Encoder(Model):
    """A bidirectional encoder; a family says how to read its config and what its checkpoints call things."""

    generates: ClassVar[bool] = False
    embedding_pooling: ClassVar[PoolingKind] = "mean"
    label_pooling: ClassVar[PoolingKind] = "cls"
    prefix: ClassVar[str]
    """What checkpoints that have a head put before the encoder's names."""
    names: ClassVar[Mapping[str, str]]
    """Parts of the checkpoint's names, and ours."""

    def __init__(
        self, config: Mapping[str, Any], ops: Ops, dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        super().__init__(config, ops, dtype)
        shape = self.read(config)
        self.vocab_size, self.hidden_size = shape.vocab_size, shape.hidden_size
        self.max_model_len = shape.positions - shape.first_position
        self.kv_specs = (KVSpec("none", (), causal=False),) * shape.num_layers
        self.tells_texts_apart = shape.texts > 1
        self.ties = {}
        self.embeddings = Embeddings(shape, ops, dtype)
        self.layers = nn.ModuleList(EncoderLayer(shape, ops, dtype) for _ in range(shape.num_layers))

    @staticmethod
    @abstractmethod
    def read(config: Mapping[str, Any]) -> EncoderConfig:
        """The family's shape out of config.json."""

    @classmethod
    def op_spec(cls, config: Mapping[str, Any], dtype: str, block_size: int) -> OpSpec:
        """See `Model.op_spec`."""
        return cls.read(config).op_spec(dtype, block_size)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """See `Model.forward`."""
        x: torch.Tensor = self.embeddings(token_ids, positions, step)
        for layer in self.layers:
            x = layer(x, step)
        return x

    def drop_output(self) -> None:
        """There is none."""

    def translate(self, stream: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """See `Model.translate`."""
        for name, tensor in stream:
            yield self._own_name(name), tensor

    def is_superfluous(self, name: str) -> bool:
        """See `Model.is_superfluous`."""
        return SUPERFLUOUS.search(name) is not None

    def _own_name(self, name: str) -> str:
        name = name.removeprefix(self.prefix).replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        for theirs, ours in self.names.items():
            name = name.replace(theirs, ours)
        return name


def activate(x: torch.Tensor, name: str) -> torch.Tensor:
    """The activation of this name, elementwise."""
    return functional.relu(x) if name == "relu" else functional.gelu(x, approximate=GELU[name])
