"""The files that sentence-transformers writes beside a model: how its embeddings are made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.errors import UserError
from anychip.plugin.tasks import PoolingKind, SentenceFiles
from anychip.weights.json_file import read_json_object, read_optional_json_object

_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING: Mapping[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_LONG_NAMES = {"mean": "mean_tokens", "cls": "cls_token"}
_TEXT_LIMITS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")


def read_sentence_files(folder: Path) -> SentenceFiles | None:
    """What modules.json and the files it names say; None without one.

    Raises `UserError` for a module or a kind of pooling that is not known here: the vectors would be wrong.
    """
    if not (folder / "modules.json").is_file():
        return None
    modules = {_kind(module): folder / str(module.get("path", "")) for module in _read_modules(folder)}
    if unknown := [kind for kind in modules if kind not in _MODULES]:
        raise UserError(
            f"{folder / 'modules.json'} asks for the module {unknown[0]!r}, which is not supported.",
            f"Supported: {', '.join(_MODULES)}.",
        )
    settings = read_optional_json_object(folder / "config_sentence_transformers.json")
    texts = next((read_json_object(folder / name) for name in _TEXT_LIMITS if (folder / name).is_file()), {})
    return SentenceFiles(
        pooling=_pooling(modules["Pooling"] / "config.json") if "Pooling" in modules else None,
        normalize="Normalize" in modules,
        max_seq_length=texts.get("max_seq_length"),
        lower_case=bool(texts.get("do_lower_case")),
        prompts={str(name): str(text) for name, text in (settings.get("prompts") or {}).items()},
        default_prompt=str(settings.get("default_prompt_name") or ""),
        similarity=str(settings.get("similarity_fn_name") or "cosine"),
    )


def _read_modules(folder: Path) -> list[dict[str, Any]]:
    path = folder / "modules.json"
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Download it again.") from None
    if not (isinstance(modules, list) and all(isinstance(module, dict) for module in modules)):
        raise UserError(f"{path} holds no list of modules.", "Download it again.")
    return modules


def _kind(module: Mapping[str, Any]) -> str:
    """`sentence_transformers.models.Pooling`, or with the module's file in between -> `Pooling`."""
    return str(module.get("type")).rpartition(".")[2]


def _pooling(path: Path) -> PoolingKind:
    config = read_json_object(path)
    if config.get("include_prompt", True) is False:
        raise UserError(f"{path} leaves prompts out of the pooling, which is not supported.", "Use another model.")
    modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
    named = str(config.get("pooling_mode") or "")  # newer files name the mode
    if not modes and named:
        modes = [f"pooling_mode_{_LONG_NAMES.get(named, named)}"]
    if len(modes) != 1 or modes[0] not in _POOLING:
        listed = ", ".join(name.removeprefix("pooling_mode_") for name in modes) or "no pooling"
        raise UserError(f"{path} asks for {listed}, which is not supported.", "Use another model.")
    return _POOLING[modes[0]]
