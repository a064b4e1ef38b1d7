from __future__ import annotations

import json
import subprocess
import sys

import pytest
from safetensors.torch import save_file
from tests.weights import tiny_models as tiny
from torch import ones

from anychip.errors import UserError
from anychip.weights.hub import is_hub_id
from anychip.weights.source import resolve_model


def write_config(folder, **values):
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **values}))
    save_file({"a": ones(2)}, folder / "model.safetensors")
    return folder


def test_a_folder(tmp_path):
    write_config(tmp_path, eos_token_id=3, hidden_size=64)
    source = resolve_model(str(tmp_path))
    assert (source.kind, source.path, source.name) == ("safetensors", tmp_path, str(tmp_path))
    assert source.config["hidden_size"] == 64
    assert source.generation_config == {}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 5], "top_p": 0.9}))
    source = resolve_model(str(tmp_path))
    assert source.generation_config == {"eos_token_id": [4, 5], "top_p": 0.9}


def test_a_gguf_file_and_a_folder_with_one(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.make_model("qwen3"), tokenizer__ggml__eos_token_id=9)
    for name in (path, tmp_path):
        source = resolve_model(str(name))
        assert (source.kind, source.path, source.generation_config["eos_token_id"]) == ("gguf", path, [9])
        assert source.config["model_type"] == "qwen3"
    tiny.write_gguf(tmp_path / "n.gguf", tiny.make_model("qwen3"))
    with pytest.raises(UserError, match="2 GGUF files"):
        resolve_model(str(tmp_path))


def test_a_folder_named_demo_is_that_folder(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    write_config(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("demo").kind == "safetensors"


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "compressed-tensors", "bitsandbytes"])
def test_quantized_checkpoints_are_refused_by_name(tmp_path, method):
    write_config(tmp_path, quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(UserError, match=method):
        resolve_model(str(tmp_path))


def test_quantization_in_a_file_of_its_own(tmp_path):
    write_config(tmp_path)
    (tmp_path / "quantize_config.json").write_text("{}")
    with pytest.raises(UserError, match="gptq"):
        resolve_model(str(tmp_path))


def test_folders_that_lack_something(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="model_type"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(UserError, match="no JSON object"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"')
    with pytest.raises(UserError, match="not valid JSON"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="no weights"):
        resolve_model(str(tmp_path))
    assert resolve_model(str(tmp_path), weights=False).config == {"model_type": "llama"}
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match="pickled"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/place", "no such name", "./nothing", "missing.gguf", ""])
def test_names_that_are_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError):
        resolve_model(name)


def test_single_weight_files(tmp_path):
    write_config(tmp_path)
    with pytest.raises(UserError, match="folder"):
        resolve_model(str(tmp_path / "model.safetensors"))
    with pytest.raises(UserError, match="not a GGUF"):
        resolve_model(str(tmp_path / "config.json"))


def test_hub_ids():
    assert is_hub_id("gpt2")
    assert is_hub_id("Qwen/Qwen3-0.6B")
    for name in ("./a", "/a", "~/a", "a/b/c", "a b", "x.gguf", ""):
        assert not is_hub_id(name)


def test_a_hub_model_without_network_is_a_sentence(tmp_path):
    code = (
        "from anychip.errors import UserError\n"
        "from anychip.weights.source import resolve_model\n"
        "try:\n    resolve_model('someone/some-model')\nexcept UserError as error:\n    print(error)\n"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "someone/some-model" in done.stdout
    assert "cannot be reached" in done.stdout
    assert "demo" in done.stdout


def test_a_hub_model_in_the_cache_needs_no_network(tmp_path):
    snapshot = tmp_path / "hub" / "models--someone--some-model" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    write_config(snapshot)
    refs = tmp_path / "hub" / "models--someone--some-model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("a" * 40)
    code = "from anychip.weights.source import resolve_model\nprint(resolve_model('someone/some-model').path)\n"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(snapshot), done.stderr


def test_finding_a_model_imports_no_torch():
    code = "import sys, anychip.weights.source; sys.exit(bool({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
