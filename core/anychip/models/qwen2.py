"""Qwen 2 and 2.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_decoder, windows_by_layer


class Qwen2Model(DecoderModel):
    """model_type `qwen2`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Biases on queries, keys and values; the upper layers may slide."""
        return read_decoder(config, max_position=32768, windows=windows_by_layer(config), qkv_bias=True)
