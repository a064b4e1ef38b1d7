import numpy as np
import torch
from safetensors.torch import save_file
from tests.weights import tiny_models as tiny

from anychip.weights import read_weights
from anychip.weights.demo import demo_model
from anychip.weights.gguf import read_gguf
from anychip.weights.source import CACHE, resolve_model


def test_a_folder_s_values_come_in_float32(tmp_path):
    tiny.make_model("llama").save_pretrained(tmp_path)
    stored = {"a": torch.tensor([1.0, -2.5, 3.14159]).bfloat16(), "b": torch.tensor([0.1]).half()}
    save_file(stored, tmp_path / "model.safetensors")
    reports = []
    found = dict(read_weights(resolve_model(str(tmp_path)), lambda *report: reports.append(report)))
    assert {name: values.dtype for name, values in found.items()} == {"a": np.float32, "b": np.float32}
    assert all(np.array_equal(found[name], stored[name].float().numpy()) for name in stored)
    assert {what for what, _, _ in reports} == {"loading weights"}


def test_a_gguf_file_s_values_come_dequantized():
    expected = read_gguf(demo_model(CACHE))
    for (name, values), (other, tensor) in zip(
        read_weights(resolve_model("demo"), lambda *_: None), expected, strict=True
    ):
        assert name == other
        assert np.array_equal(values, tensor.numpy())
