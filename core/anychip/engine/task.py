"""What a model is loaded for: what the user said, else what its architecture and its files say."""

from __future__ import annotations

from typing import Literal

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip.plugin.contract import ModelSource

LoadedTask = Literal["generate", "embed", "classify"]

CLASSIFIES = "ForSequenceClassification"
GENERATES = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration")
BODY_ONLY = ("Model", "ForMaskedLM", "ForPreTraining")
"""Endings of architectures whose hidden states are all there is to use."""


def model_task(config: EngineConfig, source: ModelSource) -> LoadedTask:
    """The task to load a model for. Raises `UserError` for one that its checkpoint has no head for."""
    name = architecture(source)
    classifies = name.endswith(CLASSIFIES)
    if config.pooling != "auto" and (config.task in ("generate", "classify") or classifies):
        raise UserError("--pooling says how embeddings are made.", "Leave it out, or use --task embed.")
    if config.task == "classify" and not classifies:
        raise UserError(
            f"{source.name} is a {name or 'model'}, which has no classification head.",
            f"Use --task embed, or a checkpoint whose architecture ends in {CLASSIFIES}.",
        )
    if config.task == "generate" and (classifies or (name.endswith(BODY_ONLY) and not name.endswith(GENERATES))):
        raise UserError(f"{source.name} is a {name}, which generates no text.", "Leave --task out.")
    return _found_task(config, source, name) if config.task == "auto" else config.task


def architecture(source: ModelSource) -> str:
    """The first architecture that config.json names, or nothing."""
    named = source.config.get("architectures") or [""]
    return str(named[0])


def _found_task(config: EngineConfig, source: ModelSource, name: str) -> LoadedTask:
    if name.endswith(CLASSIFIES):
        return "classify"
    if source.sentence is not None or config.pooling != "auto":
        return "embed"
    return "embed" if name.endswith(BODY_ONLY) and not name.endswith(GENERATES) else "generate"
