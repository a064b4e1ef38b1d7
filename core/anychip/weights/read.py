"""A checkpoint's tensors as numpy arrays, for runners in any framework."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.engine.batch import Float32
from anychip.plugin.contract import ModelSource, Progress
from anychip.weights.gguf import read_gguf
from anychip.weights.safetensors import read_safetensors


def read_weights(source: ModelSource, progress: Progress) -> Iterator[tuple[str, Float32]]:
    """Yield (Hugging Face parameter name, values) of a model, one tensor at a time, in the order of its files.

    Whatever a file stores, values come in float32, dequantized where they have to be; bfloat16 and float16 lose
    nothing by it. Raises `UserError` for a file that is missing, corrupt, or of a kind that is not read.
    """

    def report(done: int, total: int) -> None:
        progress("loading weights", done, total)

    read = read_gguf if source.kind == "gguf" else read_safetensors
    for name, values in read(source.path, report):
        assert isinstance(values, torch.Tensor), "only formats that were asked for stay quantized"
        yield name, values.float().numpy()
