"""Which class runs a model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from anychip.errors import UserError
from anychip.models.model import Model

MODELS: Mapping[str, str] = MappingProxyType(
    {
        "bert": "anychip.models.bert:BertModel",
        "camembert": "anychip.models.roberta:RobertaModel",
        "distilbert": "anychip.models.distilbert:DistilBertModel",
        "llama": "anychip.models.llama:LlamaModel",
        "mistral": "anychip.models.mistral:MistralModel",
        "qwen2": "anychip.models.qwen2:Qwen2Model",
        "qwen2_moe": "anychip.models.qwen2_moe:Qwen2MoeModel",
        "qwen3": "anychip.models.qwen3:Qwen3Model",
        "qwen3_moe": "anychip.models.qwen3_moe:Qwen3MoeModel",
        "roberta": "anychip.models.roberta:RobertaModel",
        "xlm-roberta": "anychip.models.roberta:RobertaModel",
    }
)
"""Families written for anychip, by `model_type`."""

FALLBACK = "anychip.models.fallback:FallbackModel"
"""Runs transformers' own module with our attention."""


def model_class(config: Mapping[str, Any], extra: Mapping[str, str] = MappingProxyType({})) -> type[Model]:
    """The class for a config.json: a plugin's (`extra`), ours, or the fallback. Raises `UserError` without a type."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise UserError(
            "The model's config.json names no model_type.", "Is this a folder of a Hugging Face causal language model?"
        )
    module, _, name = {**MODELS, **extra}.get(model_type, FALLBACK).partition(":")
    found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise UserError(f"{module}:{name}, registered for {model_type!r}, is no anychip model class.")
    return found
