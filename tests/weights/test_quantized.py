"""Formats that a platform keeps: read, fused, tied, and left to mean what they meant."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny import SHAPE
from tests.weights import tiny_models as tiny
from tests.weights.gguf_blocks import TYPES, random_blocks, random_kept

from anychip.models.layers import Linear
from anychip.models.loading import checkpoint_slots, load_weights
from anychip.models.registry import model_class
from anychip.ops.bind import bind
from anychip.weights.concatenate import concatenate
from anychip.weights.dequantize import dequantize
from anychip.weights.gguf import read_gguf
from anychip.weights.gguf_quantized import FORMATS
from anychip.weights.weight import Quantization, Weight


@pytest.mark.parametrize("kind", FORMATS)
def test_kept_tensors_mean_what_dequantized_ones_are(kind):
    raw = random_blocks(kind, 6, 512)
    expected = dequantize(raw, kind, TYPES[kind].block_bytes, (6, 512))
    weight = random_kept(kind, 6, 512)
    assert weight.shape == (6, 512)
    assert weight.quantization is not None
    assert weight.quantization.format == FORMATS[kind]
    torch.testing.assert_close(weight.dequantize(torch.float32), expected, rtol=1e-5, atol=1e-5)


def test_matrices_of_several_types_are_fused():
    """As in files of mixed K-quants, whose v is wider than q and k."""
    kinds = ("Q4_K", "Q2_K", "Q6_K", "Q3_K", "Q8_0")
    weights = [random_kept(kind, 3, 512) for kind in kinds]
    fused = concatenate(weights)
    assert fused is not None
    assert fused.quantization is not None
    assert (fused.quantization.format, fused.quantization.bits, fused.quantization.group_size) == ("kquant", 8, 16)
    expected = torch.cat([weight.dequantize(torch.float32) for weight in weights])
    torch.testing.assert_close(fused.dequantize(torch.float32), expected, rtol=1e-5, atol=1e-5)
    narrow = concatenate(weights[:2])
    assert narrow is not None
    assert narrow.quantization is not None
    assert (narrow.quantization.format, narrow.quantization.bits) == ("kquant", 4)
    torch.testing.assert_close(narrow.dequantize(torch.float32), expected[:6], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_file_is_kept_where_the_platform_has_the_format(tmp_path, architecture):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.make_model(architecture, tied=True), kind="Q8_0")
    plain, kept = dict(read_gguf(path)), dict(read_gguf(path, formats=("int8",)))
    assert sum(isinstance(value, Weight) for value in kept.values()) > 5
    assert not any(isinstance(value, Weight) for _, value in read_gguf(path, formats=("int4",)))
    for name, values in plain.items():
        got = kept[name]
        assert torch.equal(got.dequantize(torch.float32) if isinstance(got, Weight) else got, values), name


def random_weight(generator, rows, columns=32, zero=False):
    scale = torch.rand(rows, columns // 32, generator=generator)
    values = torch.randint(0, 16, (rows, columns), generator=generator, dtype=torch.uint8)
    point = torch.rand(rows, columns // 32, generator=generator) * 8
    return Weight(values, (rows, columns), quantization=Quantization("int4", 4, 32, scale, point if zero else None))


def test_weights_quantized_alike_are_fused_as_they_are():
    generator = torch.Generator().manual_seed(0)
    one, two = random_weight(generator, 3, zero=True), random_weight(generator, 5, zero=True)
    fused = concatenate([one, two])
    assert fused is not None
    expected = torch.cat([one.dequantize(torch.float32), two.dequantize(torch.float32)])
    assert torch.equal(fused.dequantize(torch.float32), expected)
    assert concatenate([one, replace(two, quantization=None)]) is None


@pytest.mark.parametrize("mixed", [False, True])
def test_a_model_is_filled_with_quantized_parts(mixed):
    config = {"model_type": "llama", **SHAPE, "hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": True}
    family = model_class(config)
    model = family(config, bind({}, family.op_spec(config, "float32", 16)), torch.float32)
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, slot in checkpoint_slots(model).items():
        plain = len(slot.shape) < 2 or (mixed and "k_proj" in name)
        tensors[name] = torch.randn(slot.shape) if plain else random_weight(generator, *slot.shape, zero=True)
    load_weights(model, iter(tensors.items()), "cpu", lambda weight: weight)
    assert all(tensor.device.type == "cpu" for tensor in model.parameters())
    qkv = model.get_submodule("model.layers.1.self_attn.qkv")
    assert isinstance(qkv, Linear)
    assert (qkv.weight.quantization is None) == mixed
    parts = [tensors[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
    wanted = [part.dequantize(torch.float32) if isinstance(part, Weight) else part for part in parts]
    assert torch.equal(qkv.weight.dequantize(torch.float32), torch.cat(wanted))
    assert [part.name for part in qkv.weight.parts] == ["q_proj", "k_proj", "v_proj"]
    head, table = model.get_submodule("lm_head"), model.get_submodule("model.embed_tokens")
    assert isinstance(head, Linear)
    assert head.weight.quantization is not None
    assert torch.equal(head.weight.dequantize(torch.float32), table.weight)
