"""DistilBERT (Sanh et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from anychip.models.decoder_config import whole
from anychip.models.encoder import Encoder
from anychip.models.encoder_config import EncoderConfig, check_encoder, known_activation
from anychip.models.layers import Linear
from anychip.ops.parts import Ops


class DistilBertModel(Encoder):
    """model_type `distilbert`."""

    prefix: ClassVar[str] = "distilbert."
    names: ClassVar[Mapping[str, str]] = {
        "embeddings.word_embeddings": "embeddings.tokens",
        "embeddings.position_embeddings": "embeddings.positions",
        "embeddings.LayerNorm": "embeddings.norm",
        "transformer.layer.": "layers.",
        "attention.q_lin": "query",
        "attention.k_lin": "key",
        "attention.v_lin": "value",
        "attention.out_lin": "output",
        "sa_layer_norm": "attention_norm",
        "ffn.lin1": "up",
        "ffn.lin2": "down",
        "output_layer_norm": "norm",
    }

    @staticmethod
    def read(config: Mapping[str, Any]) -> EncoderConfig:
        """Names of its own, and texts are not told apart."""
        check_encoder(config)
        return EncoderConfig(
            vocab_size=whole(config, "vocab_size"),
            hidden_size=whole(config, "dim"),
            intermediate_size=whole(config, "hidden_dim"),
            num_heads=whole(config, "n_heads"),
            num_layers=whole(config, "n_layers"),
            positions=whole(config, "max_position_embeddings", 512),
            eps=1e-12,
            activation=known_activation(config, "activation"),
        )

    def label_head(self, ops: Ops, dtype: torch.dtype, labels: int) -> nn.Module:
        """See `Model.label_head`."""
        return DistilBertHead(ops, self.hidden_size, dtype, labels)


class DistilBertHead(nn.Module):
    """Two matrices and a rectifier."""

    def __init__(self, ops: Ops, hidden_size: int, dtype: torch.dtype, labels: int) -> None:
        super().__init__()
        self.pre_classifier = Linear(ops, hidden_size, {"pre_classifier": hidden_size}, dtype, bias=True)
        self.classifier = Linear(ops, hidden_size, {"classifier": labels}, dtype, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[P, H] -> [P, labels]."""
        labels: torch.Tensor = self.classifier(torch.relu(self.pre_classifier(x)))
        return labels
