"""Mistral 7B and its successors without experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_decoder, whole


class MistralModel(DecoderModel):
    """model_type `mistral`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Every layer slides, unless `sliding_window` is null; a config that leaves it out means 4096."""
        window = None if config.get("sliding_window", 4096) is None else whole(config, "sliding_window", 4096)
        with_defaults = {"num_key_value_heads": 8, **config}
        return read_decoder(with_defaults, max_position=131072, windows=(window,) * whole(config, "num_hidden_layers"))
