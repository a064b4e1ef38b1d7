"""RoBERTa, and XLM-RoBERTa and CamemBERT, which differ in vocabulary only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from anychip.models.bert import NAMES
from anychip.models.encoder import Encoder
from anychip.models.encoder_config import EncoderConfig, read_encoder
from anychip.models.layers import Linear
from anychip.ops.parts import Ops


class RobertaModel(Encoder):
    """model_types `roberta`, `xlm-roberta` and `camembert`."""

    prefix: ClassVar[str] = "roberta."
    names: ClassVar[Mapping[str, str]] = NAMES

    @staticmethod
    def read(config: Mapping[str, Any]) -> EncoderConfig:
        """Positions count from the padding token's id plus one."""
        padding = config.get("pad_token_id")
        return read_encoder(config, first_position=1 + (1 if padding is None else int(padding)))

    def label_head(self, ops: Ops, dtype: torch.dtype, labels: int) -> nn.Module:
        """See `Model.label_head`."""
        return RobertaHead(ops, self.hidden_size, dtype, labels)


class RobertaHead(nn.Module):
    """Two matrices."""

    def __init__(self, ops: Ops, hidden_size: int, dtype: torch.dtype, labels: int) -> None:
        super().__init__()
        dense = Linear(ops, hidden_size, {"dense": hidden_size}, dtype, bias=True)
        output = Linear(ops, hidden_size, {"out_proj": labels}, dtype, bias=True)
        self.classifier = nn.ModuleDict({"dense": dense, "out_proj": output})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[P, H] -> [P, labels]."""
        labels: torch.Tensor = self.classifier["out_proj"](torch.tanh(self.classifier["dense"](x)))
        return labels
