from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from tests.weights import tiny_models as tiny
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from anychip.errors import UserError
from anychip.weights.dequantize import dequantize
from anychip.weights.gguf import read_gguf
from anychip.weights.gguf_config import gguf_config, gguf_generation_config
from anychip.weights.gguf_metadata import GGUFFile
from anychip.weights.gguf_types import READABLE_TYPES


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_file_gives_back_the_model_it_was_made_from(tmp_path, architecture, tied):
    model = tiny.make_model(architecture, tied)
    path = tiny.write_gguf(tmp_path / "m.gguf", model)
    reports = []
    read = dict(read_gguf(path, lambda done, total: reports.append((done, total))))
    expected = dict(model.named_parameters())
    assert set(read) == set(expected)
    for name, values in expected.items():
        assert torch.equal(read[name], values), name
    assert reports[-1][0] == reports[-1][1] > 0
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_file_reads_like_transformers(tmp_path, architecture):
    model = tiny.make_model(architecture, tied=True)
    path = tiny.write_gguf(tmp_path / "m.gguf", model, kind="Q8_0")
    expected = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    read = dict(read_gguf(path))
    assert set(read) == set(expected)
    for name, values in read.items():
        assert torch.equal(values, expected[name]), name


@pytest.mark.parametrize("kind", list(READABLE_TYPES.values()), ids=lambda kind: kind.name)
def test_values_equal_the_packages(kind):
    generator = np.random.default_rng(0)
    rows, columns = 6, 512
    raw = generator.integers(0, 256, (rows, columns // kind.block_values * kind.block_bytes), dtype=np.uint8)
    if kind.block_values == 1:
        raw = generator.standard_normal((rows, columns)).astype(np.float32)
        raw = gguf.quants.quantize(raw, gguf.GGMLQuantizationType[kind.name]).view(np.uint8).reshape(rows, -1)
    with np.errstate(all="ignore"):  # random bytes make infinite scales
        expected = torch.from_numpy(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind.name]))
        ours = dequantize(torch.from_numpy(raw.copy()).reshape(-1), kind.name, kind.block_bytes, (rows, columns))
    finite = torch.isfinite(expected)
    assert torch.equal(ours.float()[finite], expected[finite])
    assert ours.shape == (rows, columns)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_precision_is_kept(tmp_path, kind):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.make_model("qwen2"), kind=kind)
    dtypes = {values.dtype for name, values in read_gguf(path) if values.dim() > 1}
    assert dtypes == {{"F16": torch.float16, "BF16": torch.bfloat16}[kind]}


def test_the_configuration(tmp_path):
    path = tiny.write_gguf(
        tmp_path / "m.gguf",
        tiny.make_model("qwen3"),
        tokenizer__ggml__eos_token_id=7,
        tokenizer__ggml__eot_token_id=8,
        tokenizer__ggml__eom_token_id=7,
        tokenizer__ggml__bos_token_id=1,
        general__file_type=0,
        general__sampling__temp=0.5,
        general__sampling__top_k=20,
    )
    file = GGUFFile(path)
    config = gguf_config(file)
    assert config["model_type"] == "qwen3"
    assert (config["head_dim"], config["num_key_value_heads"], config["vocab_size"]) == (32, 2, 96)
    assert config["rope_theta"] == 500000.0
    assert config["eos_token_id"] == [7, 8]
    assert not config["tie_word_embeddings"]
    assert config["dtype"] == "float32"
    assert gguf_generation_config(file) == {"eos_token_id": [7, 8], "bos_token_id": 1, "temperature": 0.5, "top_k": 20}


def test_llama3_rope_comes_out_of_its_frequencies(tmp_path):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    reference = LlamaConfig(**tiny.SHAPE, head_dim=128, rope_parameters=scaling)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](reference, "cpu")
    plain = 1.0 / 500000.0 ** (torch.arange(0, 128, 2).float() / 128)
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.make_model("llama"), rope_divisors=(plain / scaled).tolist())
    expected = {name: value for name, value in scaling.items() if name != "rope_theta"}
    assert gguf_config(GGUFFile(path))["rope_scaling"] == expected
    assert "rope_freqs.weight" not in dict(read_gguf(path))
    strange = tiny.write_gguf(tmp_path / "s.gguf", tiny.make_model("llama"), rope_divisors=[1.0, 3.0, 2.0, 8.0])
    with pytest.raises(UserError, match="rope_freqs"):
        gguf_config(GGUFFile(strange))


def test_linear_and_yarn_rope(tmp_path):
    fields = {"qwen2__rope__scaling__type": "yarn", "qwen2__rope__scaling__factor": 4.0}
    path = tiny.write_gguf(
        tmp_path / "m.gguf",
        tiny.make_model("qwen2"),
        **fields,
        qwen2__rope__scaling__original_context_length=64,
    )
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert gguf_config(GGUFFile(path))["rope_scaling"] == expected
    fields["qwen2__rope__scaling__type"] = "spiral"
    with pytest.raises(UserError, match="spiral"):
        gguf_config(GGUFFile(tiny.write_gguf(tmp_path / "n.gguf", tiny.make_model("qwen2"), **fields)))


def test_an_end_of_turn_is_found_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_token_list(["a", "<|eom_id|>", "<|eot_id|>"])
    writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert gguf_generation_config(GGUFFile(tmp_path / "m.gguf"))["eos_token_id"] == [0, 2, 1]


def test_what_is_not_read_is_named(tmp_path):
    model = tiny.make_model("qwen2")
    odd = tiny.write_gguf(tmp_path / "a.gguf", model, extra={"blk.0.ssm_a.weight": np.ones(4, np.float32)})
    with pytest.raises(UserError, match=r"ssm_a"):
        list(read_gguf(odd))
    integers = tiny.write_gguf(tmp_path / "b.gguf", model, extra={"blk.5.attn_norm.weight": np.ones(4, np.int32)})
    with pytest.raises(UserError, match="I32"):
        list(read_gguf(integers))
    for number, fields in enumerate([{"general__architecture": "mamba"}, {"qwen2__expert_count": 8}]):
        path = tmp_path / f"c{number}.gguf"
        tiny.write_gguf(path, model, **({} if number == 0 else fields))
        if number == 0:
            path.write_bytes(path.read_bytes().replace(b"qwen2", b"mamba"))
        with pytest.raises(UserError, match="mamba" if number == 0 else "experts"):
            gguf_config(GGUFFile(path))
    split = gguf.GGUFWriter(tmp_path / "d.gguf", "llama")
    split.add_uint16("split.count", 3)
    split.write_header_to_file()
    split.write_kv_data_to_file()
    split.close()
    with pytest.raises(UserError, match="merge"):
        gguf_config(GGUFFile(tmp_path / "d.gguf"))


def test_metadata_equals_the_packages(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.make_model("llama"), kind="Q4_0", tokenizer__ggml__pre="x")
    ours, reference = GGUFFile(path), gguf.GGUFReader(path)
    for key, value in reference.fields.items():
        if not key.startswith("GGUF."):
            assert ours.get(key) == value.contents(), key
    for tensor in reference.tensors:
        entry = ours.tensors[tensor.name]
        assert (entry.start, entry.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert entry.shape == tuple(int(size) for size in reversed(tensor.shape))


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    return tiny.write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", tiny.make_model("llama")).read_bytes()


@pytest.mark.parametrize("part", [0.0, 0.00001, 0.0001, 0.002, 0.005, 0.01, 0.02, 0.5, 0.9, 0.9999])
def test_a_truncated_file_is_refused(tmp_path, whole_file, part):
    path = tmp_path / "m.gguf"
    path.write_bytes(whole_file[: int(part * len(whole_file))])
    with pytest.raises(UserError, match=r"m\.gguf"):
        list(read_gguf(path))


def test_any_damaged_header_is_refused_or_read(tmp_path, whole_file):
    generator = np.random.default_rng(1)
    path = tmp_path / "m.gguf"
    for _ in range(150):
        damaged = bytearray(whole_file)
        for position in generator.integers(0, 2500, 3):
            damaged[position] = generator.integers(0, 256)
        path.write_bytes(damaged)
        try:
            gguf_config(GGUFFile(path))
            list(read_gguf(path))
        except UserError as error:
            assert str(path) in str(error) or "rows" in str(error)  # noqa: PT017 -- both outcomes are right


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(64))
    with pytest.raises(UserError, match="version 1"):
        GGUFFile(path)
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(64))
    with pytest.raises(UserError, match="big-endian"):
        GGUFFile(path)
    path.write_bytes(b"PK\x03\x04" + bytes(64))
    with pytest.raises(UserError, match="not a GGUF"):
        GGUFFile(path)
    with pytest.raises(UserError, match="No such file"):
        GGUFFile(tmp_path / "none.gguf")
