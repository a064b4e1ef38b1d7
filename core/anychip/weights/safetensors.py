"""Tensors of a safetensors folder, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from anychip.errors import UserError
from anychip.weights.files import safetensors_files, shard_names
from anychip.weights.progress import Progress, report


def read_safetensors(folder: Path, progress: Progress | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (parameter name, values as stored) of a single file or of all shards of an index.

    Raises `UserError` for a file that is missing, truncated or corrupt.
    """
    files = safetensors_files(folder)
    total = sum(file.stat().st_size for file in files)
    expected = shard_names(folder)
    done = 0
    for file in files:
        found = set()
        for name, values in _read_file(file):
            found.add(name)
            yield name, values
            done += values.nbytes
            report(progress, done, total)
        missing = expected.get(file.name, set()) - found
        if missing:
            raise UserError(f"{file} lacks the tensor {min(missing)!r} that the index lists.", "Download it again.")
    report(progress, total, total)


def _read_file(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 -- the handle is no mapping
                yield name, tensors.get_tensor(name)
    except (SafetensorError, OSError) as error:
        size = f"{file.stat().st_size:,} bytes" if file.is_file() else "missing"
        raise UserError(
            f"{file} is truncated or corrupt ({size}): {error}.", "Download it again and compare its size."
        ) from error
