"""Where a model is: from the name that a user gives to a folder or a file, and its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anychip.errors import UserError
from anychip.plugin.contract import ModelSource
from anychip.weights.demo import demo_model
from anychip.weights.demo_embeddings import demo_embeddings
from anychip.weights.files import safetensors_files
from anychip.weights.gguf_config import gguf_config, gguf_generation_config
from anychip.weights.gguf_metadata import GGUFFile
from anychip.weights.hub import fetch_file, fetch_snapshot, is_hub_id
from anychip.weights.json_file import read_json_object, read_optional_json_object
from anychip.weights.progress import Progress
from anychip.weights.sentence import read_sentence_files

DEMO, DEMO_EMBEDDINGS = "demo", "demo-embeddings"
CACHE = Path("~/.cache/anychip")
_GGUF_FILE_PARTS = 3


def resolve_model(
    name_or_path: str,
    revision: str | None = None,
    cache_dir: Path | None = None,
    token: str | None = None,
    progress: Progress | None = None,
    weights: bool = True,
) -> ModelSource:
    """Find a model: a demo, a folder, a .gguf file, a hub id, or `owner/repository/file.gguf` on the hub.

    `cache_dir` keeps the demo models; hub models lie in the hub's own cache. `progress` follows the demo's download.
    `weights=False` neither fetches nor asks for weights. The repository's Python files are never fetched or run.
    Raises `UserError` naming what is missing or cannot be read.
    """
    path = Path(name_or_path).expanduser()
    if revision and (path.exists() or name_or_path in (DEMO, DEMO_EMBEDDINGS)):
        raise UserError(f"{name_or_path} is no model of the hub, so it has no revision {revision!r}.", "Leave it out.")
    if name_or_path == DEMO and not path.exists():
        return _gguf(demo_model(cache_dir or CACHE, progress), DEMO)
    if name_or_path == DEMO_EMBEDDINGS and not path.exists():
        return _folder(demo_embeddings(cache_dir or CACHE, progress), DEMO_EMBEDDINGS, weights)
    if path.is_dir():
        return _folder(path, name_or_path, weights)
    if path.exists():
        return _file(path, name_or_path)
    parts = name_or_path.split("/")
    if name_or_path.endswith(".gguf") and len(parts) >= _GGUF_FILE_PARTS and is_hub_id("/".join(parts[:2])):
        return _gguf(fetch_file("/".join(parts[:2]), "/".join(parts[2:]), revision, token), name_or_path)
    if is_hub_id(name_or_path):
        return _folder(fetch_snapshot(name_or_path, revision, token, weights), name_or_path, weights)
    raise UserError(
        f"There is no model at {name_or_path}.", "Give a folder, a .gguf file, a Hugging Face id, or `demo`."
    )


def _file(path: Path, name: str) -> ModelSource:
    if path.suffix == ".safetensors":
        raise UserError(f"{path} is a single weight file.", f"Give its folder: {path.parent}.")
    return _gguf(path, name)


def _gguf(path: Path, name: str) -> ModelSource:
    file = GGUFFile(path)
    return ModelSource(name, path, "gguf", gguf_config(file), gguf_generation_config(file))


def _folder(folder: Path, name: str, weights: bool) -> ModelSource:
    if not (folder / "config.json").is_file():
        return _gguf(_only_gguf(folder), name)
    config = read_json_object(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise UserError(f"{folder / 'config.json'} names no model_type.", "Save the model with save_pretrained.")
    _refuse_quantized(folder, config)
    if weights:
        safetensors_files(folder)
    generation = read_optional_json_object(folder / "generation_config.json")
    return ModelSource(name, folder, "safetensors", config, generation, sentence=read_sentence_files(folder))


def _only_gguf(folder: Path) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{folder} holds {len(found)} GGUF files.", f"Give one of them, such as {found[0]}.")
    raise UserError(
        f"{folder} has no config.json.", "Give a model folder as save_pretrained writes it, or a .gguf file."
    )


def _refuse_quantized(folder: Path, config: dict[str, Any]) -> None:
    text_config = config.get("text_config") or {}
    stated = config.get("quantization_config") or text_config.get("quantization_config") or config.get("quantization")
    if isinstance(stated, dict):
        method = str(stated.get("quant_method") or stated.get("mode") or "an unnamed method")
    elif (folder / "quantize_config.json").is_file():
        method = "gptq"
    elif (folder / "hf_quant_config.json").is_file():
        method = "modelopt"
    else:
        return
    raise UserError(
        f"The checkpoint in {folder} is quantized with {method}, which is not read yet.",
        "Give the unquantized checkpoint, or a GGUF file of the model.",
    )
