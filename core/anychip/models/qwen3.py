"""Qwen 3, dense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_decoder, windows_by_layer


class Qwen3Model(DecoderModel):
    """model_type `qwen3`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Queries and keys are normalized a head at a time; the size of a head is its own number."""
        bias = bool(config.get("attention_bias", False))
        return read_decoder(
            config,
            max_position=32768,
            windows=windows_by_layer(config),
            head_dim=128,
            qkv_bias=bias,
            output_bias=bias,
            head_norms=True,
        )
