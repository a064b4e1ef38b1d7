"""What a person gets wrong ends with a sentence, a remedy and status 2, never with a traceback."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest
from tests.cli.command import ANYCHIP, config_folder, run
from tests.weights import tiny_models

from anychip.cli.elsewhere import NEEDLESS, NOT_BUILT, RENAMED
from anychip.cli.fields import engine_fields, server_fields
from anychip.cli.sampling import sampling_fields
from anychip.testing.tiny_model import write_tiny_model

NULL = ("--device", "null", "--load-format", "dummy")


def check(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Status 2, nothing on standard output, and one line on standard error that holds `words`."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("anychip: ")
    assert lines[0].count(". ") >= 1, f"no remedy: {lines[0]}"
    assert [word for word in words if word not in lines[0]] == [], lines[0]


@pytest.mark.parametrize("arguments", [["serve", "--bogus"], ["run", "--bogus"], ["--bogus"], ["bogus"]])
def test_unknown_flag_or_command(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "bogus" in done.stderr
    assert "-h" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--gpu-memory-utilization", "0.9"], "--memory-utilization"),
        (["--enable-auto-tool-choice"], "chat template"),
        (["--tensor-parallel-size=2"], "one device"),
    ],
)
def test_flags_of_other_engines(arguments: list[str], word: str) -> None:
    check(run("serve", "demo", *arguments), arguments[0].partition("=")[0], word)


def test_no_flag_of_ours_is_called_anothers() -> None:
    ours = {field.flag for field in (*engine_fields(), *server_fields(), *sampling_fields())}
    others = {**RENAMED, **NEEDLESS, **NOT_BUILT}
    assert ours.isdisjoint(others)
    assert set(RENAMED.values()) <= ours | {"--no-enable-prefix-caching"}


@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [
        ("--port", "abc", "integer"),
        ("--port", "65536", "65535"),
        ("--max-num-seqs", "0", "1"),
        ("--max-num-seqs", "1" + "0" * 30, "1e+15"),
        ("--seed", "1" + "0" * 30, "integer"),
        ("--memory-utilization", "1.5", "1"),
        ("--dtype", "int3", "bfloat16"),
        ("--load-format", "pickle", "safetensors"),
        ("--quantization", "int3", "int4"),
        ("--kv-cache-dtype", "int4", "auto, int8 or fp8"),
        ("--quantization", "awq", "Leave the flag out"),
        ("--tool-call-parser", "bogus", "hermes"),
        ("--reasoning-parser", "bogus", "think"),
    ],
)
def test_bad_value_of_a_flag(flag: str, value: str, word: str) -> None:
    done = run("serve", "no-such-model", flag, value)
    check(done, value, word)
    assert flag in done.stderr or flag.endswith("-parser")


@pytest.mark.parametrize("flag", ["--api-key", "--served-model-name"])
def test_an_empty_key_or_name_is_none(flag: str) -> None:
    """A key that a shell's unset variable left empty would leave the server open."""
    check(run("serve", "no-such-model", flag, ""), flag, "not empty")


def test_nothing_to_compile() -> None:
    check(run("build-kernels", "--device", "reference"), "nothing to compile for reference")
    check(run("build-kernels", "--device", "cpu", "--native-kernels", "sse9"), "'sse9'", "avx2")


def test_two_models() -> None:
    check(run("serve", "one", "--model", "two"), "one", "two")


def test_no_prompt(tmp_path: Path) -> None:
    check(run("run", "  "), "prompt is empty")


def test_unknown_device(tmp_path: Path) -> None:
    folder = config_folder(tmp_path)
    check(run("run", "hello", "--model", folder, "--load-format", "dummy", "--device", "abacus"), "abacus", "reference")


def test_no_such_model(tmp_path: Path) -> None:
    check(run("serve", tmp_path / "nowhere", "--port", 0), "nowhere", "folder")


def test_folder_without_a_config(tmp_path: Path) -> None:
    check(run("serve", tmp_path, "--port", 0), "config.json")


def test_folder_without_weights(tmp_path: Path) -> None:
    check(run("serve", config_folder(tmp_path), "--port", 0), "safetensors")


def test_config_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": ')
    check(run("serve", tmp_path, "--port", 0), "config.json")


def test_unknown_architecture(tmp_path: Path) -> None:
    folder = config_folder(tmp_path, model_type="perceptron_9000", architectures=["Perceptron9000ForCausalLM"])
    check(run("serve", folder, "--port", 0, "--load-format", "dummy"), "perceptron_9000")


def test_quantized_checkpoint(tmp_path: Path) -> None:
    folder = config_folder(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    check(run("serve", folder, "--port", 0), "gptq", "GGUF")


@pytest.mark.parametrize("kept", [5, 1000, -1])
def test_truncated_safetensors(tmp_path: Path, kept: int) -> None:
    folder = write_tiny_model(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    check(run("run", "w1", "--model", folder), "model.safetensors")


@pytest.mark.parametrize("kept", [0, 3, 20, 500, -1])
def test_truncated_gguf(tmp_path: Path, kept: int) -> None:
    path = tiny_models.write_gguf(tmp_path / "tiny.gguf", tiny_models.make_model("qwen3"))
    path.write_bytes(path.read_bytes()[:kept])
    check(run("run", "w1", "--model", path), "tiny.gguf")


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check(run("serve", config_folder(tmp_path), *NULL, "--port", port), str(port), "--port")


def test_too_little_memory(tmp_path: Path) -> None:
    done = run("serve", config_folder(tmp_path), *NULL, "--port", 0, "--kv-cache-memory-bytes", 1000)
    check(done, "256 tokens", "--kv-cache-memory-bytes")


def test_length_that_the_memory_does_not_hold(tmp_path: Path) -> None:
    memory = ("--kv-cache-memory-bytes", 100_000, "--max-model-len", 200)
    check(run("serve", config_folder(tmp_path), *NULL, "--port", 0, *memory), "200 tokens", "--max-model-len")


def test_length_beyond_the_model(tmp_path: Path) -> None:
    done = run("serve", config_folder(tmp_path), *NULL, "--port", 0, "--max-model-len", 257)
    check(done, "257", "--max-model-len 256")


def test_text_without_a_tokenizer(tmp_path: Path) -> None:
    check(run("run", "hello", "--model", config_folder(tmp_path), *NULL), "tokenizer", "token ids")


def test_prompt_that_cannot_fit(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "model")
    check(run("run", "w1 " * 300, "--model", folder, "--raw", "--device", "reference"), "256")


def test_missing_chat_template_file(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "model")
    check(run("run", "w1", "--model", folder, "--chat-template", tmp_path / "none.jinja"), "none.jinja")


def test_tokenizer_that_is_no_json(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{")
    check(run("run", "w1", "--model", folder, "--device", "reference"), "tokenizer.json")


def test_a_revision_of_what_lies_here() -> None:
    check(run("run", "--revision", "main", "Hi"), "'main'", "demo")


def test_a_prompt_that_is_no_text() -> None:
    done = subprocess.run([*ANYCHIP, "run", "--raw"], input=b"\xff\xfe", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"anychip: Standard input is no text")


def test_a_variable_of_the_environment_is_named() -> None:
    check(run("run", "Hi", ANYCHIP_MAX_MODEL_LEN="much"), "ANYCHIP_MAX_MODEL_LEN")


@pytest.mark.parametrize(("name", "value"), [("temperature", -5), ("eos_token_id", "</s>")])
def test_a_generation_config_that_cannot_be(tmp_path: Path, name: str, value: object) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({name: value}))
    done = run("run", "--model", str(tmp_path), "--device", "null", "--raw", "w5")
    check(done, "generation_config.json", name)
