"""Qwen 2, mixture of experts with a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anychip.models.decoder import DecoderModel
from anychip.models.decoder_config import DecoderConfig, read_experts, whole
from anychip.models.qwen2 import Qwen2Model


class Qwen2MoeModel(DecoderModel):
    """model_type `qwen2_moe`."""

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Qwen 2 with experts instead of most feed-forward networks."""
        shape = replace(Qwen2Model.read(config), qkv_bias=bool(config.get("qkv_bias", True)))
        experts = read_experts(config, shared_size=whole(config, "shared_expert_intermediate_size"))
        return replace(shape, experts=experts)
