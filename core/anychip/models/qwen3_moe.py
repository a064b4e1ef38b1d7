"""Qwen 3, mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_experts
from anychip.models.qwen3 import Qwen3Model


class Qwen3MoeModel(DecoderModel):
    """model_type `qwen3_moe`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Qwen 3 with experts instead of most feed-forward networks; all layers slide, or none."""
        window = config.get("sliding_window") if config.get("use_sliding_window") else None
        shape = Qwen3Model.read({**config, "use_sliding_window": False})
        return replace(shape, windows=(window,) * shape.num_layers, experts=read_experts(config))
