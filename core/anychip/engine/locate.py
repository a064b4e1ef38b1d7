"""From the config's model name to files on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anychip.config import EngineConfig
from anychip.plugin.contract import ModelSource, Progress


def locate_model(config: EngineConfig, progress: Progress) -> ModelSource:
    """Find the model, fetching it first where it lies elsewhere. Raises `UserError` naming what is missing."""
    from anychip.weights.source import resolve_model  # reads no weights, but lies beside what does

    def report(done: int, total: int) -> None:
        progress("fetching the model", done, total)

    return resolve_model(
        config.model,
        config.revision,
        config.cache_path,
        config.hf_token,
        report,
        weights=config.load_format != "dummy",
    )


def with_plugin_class(source: ModelSource, models: Mapping[str, str]) -> ModelSource:
    """The source with the class that a plugin registered for its model type, if one did."""
    return replace(source, model_class=models.get(str(source.config.get("model_type")), ""))
