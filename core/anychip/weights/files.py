"""Which files of a model folder hold its weights."""

from __future__ import annotations

from pathlib import Path

from anychip.errors import UserError
from anychip.weights.json_file import read_json_object

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def safetensors_files(folder: Path) -> list[Path]:
    """The safetensors files to read, in order. Raises `UserError` if there are none or a shard is missing."""
    shards = sorted(shard_names(folder))
    if shards:
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing:
            raise UserError(
                f"{folder} lacks {missing[0]}, one of the {len(shards)} files of its index.",
                "Download the missing file.",
            )
        return [folder / name for name in shards]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    # `consolidated` files hold the same weights once more, under other names.
    found = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("consolidated"))
    if not found:
        raise _no_weights(folder)
    return found


def shard_names(folder: Path) -> dict[str, set[str]]:
    """File name to the parameters that the index says it holds; empty without an index."""
    index = folder / _INDEX
    if (folder / _SINGLE).is_file() or not index.is_file():
        return {}
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise UserError(f"{index} has no weight_map.", "Download it again.")
    shards: dict[str, set[str]] = {}
    for parameter, name in weight_map.items():
        if Path(name).name != name:
            raise UserError(f"{index} names a file outside the folder: {name!r}.", "Download the model again.")
        shards.setdefault(name, set()).add(parameter)
    return shards


def _no_weights(folder: Path) -> UserError:
    pickled = next((path.name for pattern in _PICKLED for path in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        return UserError(
            f"{folder} holds pickled weights only ({pickled}), which are not read because they can run code.",
            "Save the model again with transformers' save_pretrained, which writes safetensors.",
        )
    return UserError(
        f"{folder} holds no weights.", "Put *.safetensors files there, or pass --load-format dummy for random weights."
    )
