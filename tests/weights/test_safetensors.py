from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.weights import tiny_models as tiny

from anychip.errors import UserError
from anychip.weights.dummy import DummyWeights
from anychip.weights.safetensors import read_safetensors


@pytest.fixture(params=["single", "sharded"])
def folder(request, tmp_path):
    size = "5GB" if request.param == "single" else "100KB"
    tiny.make_model("llama").save_pretrained(tmp_path, max_shard_size=size)
    return tmp_path


def test_every_parameter_comes_once(folder):
    expected = dict(tiny.make_model("llama").named_parameters())
    reports, names = [], []
    for name, values in read_safetensors(folder, lambda done, total: reports.append((done, total))):
        names.append(name)
        assert torch.equal(values, expected[name])
    assert sorted(names) == sorted(expected)
    assert reports[-1][0] == reports[-1][1]
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_the_stored_type_is_kept(tmp_path):
    save_file({"a": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    assert dict(read_safetensors(tmp_path))["a"].dtype == torch.bfloat16


@pytest.mark.parametrize("part", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused(folder, part):
    file = sorted(folder.glob("*.safetensors"))[-1]
    content = file.read_bytes()
    file.write_bytes(content[: int(part * len(content))])
    with pytest.raises(UserError, match=file.name):
        list(read_safetensors(folder))


def test_a_corrupt_header_is_refused(folder):
    file = sorted(folder.glob("*.safetensors"))[0]
    content = bytearray(file.read_bytes())
    content[9:20] = b"\xff" * 11
    file.write_bytes(content)
    with pytest.raises(UserError, match="corrupt"):
        list(read_safetensors(folder))


def test_shards_that_do_not_fit_their_index(tmp_path):
    tiny.make_model("llama").save_pretrained(tmp_path, max_shard_size="100KB")
    first, second = sorted(tmp_path.glob("*.safetensors"))[:2]
    tensors = load_file(first)
    save_file(dict(list(tensors.items())[1:]), first)
    with pytest.raises(UserError, match=min(tensors)):
        list(read_safetensors(tmp_path))
    second.unlink()
    with pytest.raises(UserError, match=second.name):
        list(read_safetensors(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    with pytest.raises(UserError, match="outside"):
        list(read_safetensors(tmp_path))
    index.write_text("{}")
    with pytest.raises(UserError, match="weight_map"):
        list(read_safetensors(tmp_path))


def test_folders_without_safetensors(tmp_path):
    with pytest.raises(UserError, match="no weights"):
        list(read_safetensors(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        list(read_safetensors(tmp_path))


def test_a_second_copy_of_the_weights_is_left_alone(tmp_path):
    save_file({"a": torch.ones(3)}, tmp_path / "part.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "consolidated.safetensors")
    assert list(dict(read_safetensors(tmp_path))) == ["a"]


def test_dummy_weights_are_small_and_repeat():
    parameters = {"w": torch.empty(700, 300), "b": torch.empty(5), "model.norm.weight": torch.empty(64)}
    weights = DummyWeights(torch.float32, "cpu")
    for name, values in parameters.items():
        weights.fill(name, values, seed=3)
    first = {name: values.clone() for name, values in parameters.items()}
    for name, values in parameters.items():
        DummyWeights(torch.float32, "cpu").fill(name, values, seed=3)
        assert torch.equal(values, first[name])
        assert torch.isfinite(values).all()
    assert 0.015 < parameters["w"].std() < 0.025
    assert abs(parameters["model.norm.weight"].mean() - 1) < 0.02
    assert not torch.equal(parameters["w"][0], parameters["w"][1])
    weights.fill("w", first["w"], seed=4)
    assert not torch.equal(parameters["w"], first["w"])
    half = torch.empty(10, dtype=torch.bfloat16)
    DummyWeights(torch.bfloat16, "cpu").fill("h", half)
    assert half.abs().max() < 0.2


def test_peak_memory_is_the_model_and_one_tensor(tmp_path):
    """Reading 16 tensors of 8 MB and dropping each needs far less than 128 MB."""
    save_file({f"t{index}": torch.zeros(2 << 20) for index in range(16)}, tmp_path / "model.safetensors")
    code = (
        "import sys, resource, torch\n"
        "from pathlib import Path\n"
        "from anychip.weights.safetensors import read_safetensors\n"
        "def anonymous():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return int(next(line for line in lines if line.startswith('RssAnon')).split()[1])\n"
        "before = anonymous()\n"
        "peak = max(anonymous() for _, values in read_safetensors(Path(sys.argv[1])) if values.sum() == 0)\n"
        "print(peak - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40_000
