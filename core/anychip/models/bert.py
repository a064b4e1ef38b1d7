"""BERT, and the many models that kept its shape (MiniLM, BGE, E5, GTE ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from anychip.models.encoder import Encoder
from anychip.models.encoder_config import EncoderConfig, read_encoder
from anychip.models.layers import Linear
from anychip.ops.parts import Ops

NAMES: Mapping[str, str] = {
    "embeddings.word_embeddings": "embeddings.tokens",
    "embeddings.position_embeddings": "embeddings.positions",
    "embeddings.token_type_embeddings": "embeddings.texts",
    "embeddings.LayerNorm": "embeddings.norm",
    "encoder.layer.": "layers.",
    "attention.self.": "",
    "attention.output.dense": "output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm",
}


class BertModel(Encoder):
    """model_type `bert`."""

    prefix: ClassVar[str] = "bert."
    names: ClassVar[Mapping[str, str]] = NAMES

    @staticmethod
    def read(config: Mapping[str, Any]) -> EncoderConfig:
        """Positions count from 0, and two texts are told apart."""
        return read_encoder(config)

    def label_head(self, ops: Ops, dtype: torch.dtype, labels: int) -> nn.Module:
        """See `Model.label_head`."""
        return BertHead(ops, self.hidden_size, dtype, labels)


class BertHead(nn.Module):
    """The pooler of the next-sentence task, then one matrix."""

    def __init__(self, ops: Ops, hidden_size: int, dtype: torch.dtype, labels: int) -> None:
        super().__init__()
        self.pooler = nn.ModuleDict({"dense": Linear(ops, hidden_size, {"dense": hidden_size}, dtype, bias=True)})
        self.classifier = Linear(ops, hidden_size, {"classifier": labels}, dtype, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[P, H] -> [P, labels]."""
        labels: torch.Tensor = self.classifier(torch.tanh(self.pooler["dense"](x)))
        return labels
