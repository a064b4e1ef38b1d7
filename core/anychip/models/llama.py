"""Llama 2 and 3, and all that kept their shape (SmolLM, TinyLlama, Yi ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_decoder


class LlamaModel(DecoderModel):
    """model_type `llama`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Biases on all or none of the attention's and the feed-forward network's matrices."""
        bias = bool(config.get("attention_bias", False))
        return read_decoder(
            config, max_position=2048, qkv_bias=bias, output_bias=bias, mlp_bias=bool(config.get("mlp_bias", False))
        )
