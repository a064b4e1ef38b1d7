"""The Hugging Face style configuration that a GGUF file's metadata amounts to."""

from __future__ import annotations

import math
import struct
from typing import Any

from anychip.errors import UserError
from anychip.weights.gguf_metadata import GGUFFile

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""GGUF architectures that are read; the names are Hugging Face model types as well."""

_DTYPES = {0: "float32", 1: "float16", 32: "bfloat16"}
_END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>")
_END_OF_MESSAGE = ("<|eom_id|>",)
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL = 1.0, 4.0, 8192
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def gguf_config(file: GGUFFile) -> dict[str, Any]:
    """What config.json would say. Raises `UserError` for an architecture that is not read."""
    architecture = check_readable(file)
    heads = _uniform(file, architecture, "attention.head_count")
    hidden_size = file.require(f"{architecture}.embedding_length")
    kv_heads = _uniform(file, architecture, "attention.head_count_kv", heads)
    head_dim = file.get(f"{architecture}.attention.key_length", hidden_size // heads)
    config = {
        "model_type": architecture,
        "architectures": [ARCHITECTURES[architecture]],
        "hidden_size": hidden_size,
        "intermediate_size": _uniform(file, architecture, "feed_forward_length"),
        "num_hidden_layers": file.require(f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": file.require(f"{architecture}.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.get(f"{architecture}.rope.freq_base", 10000.0),
        "rope_scaling": None,
        "vocab_size": _vocab_size(file),
        "max_position_embeddings": file.require(f"{architecture}.context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": eos_token_ids(file),
        "weight_types": sorted({tensor.type.name for tensor in file.tensors.values() if len(tensor.shape) == 2}),
    }
    config["rope_scaling"] = _rope_scaling(file, architecture, config)
    dtype = _DTYPES.get(file.get("general.file_type", -1))
    return {**config, "dtype": dtype} if dtype else config


def gguf_generation_config(file: GGUFFile) -> dict[str, Any]:
    """What generation_config.json would say: end ids, and sampling defaults where the file holds some."""
    stated = {ours: file.get(f"general.sampling.{theirs}") for theirs, ours in _SAMPLING.items()}
    sampling = {name: value for name, value in stated.items() if value is not None}
    return {"eos_token_id": eos_token_ids(file), "bos_token_id": file.get("tokenizer.ggml.bos_token_id"), **sampling}


def check_readable(file: GGUFFile) -> str:
    """The file's architecture; raises `UserError` for one that is not read or a part of a split model."""
    architecture: str = file.require("general.architecture")
    parts = file.get("split.count", 0)
    if parts > 1:
        raise UserError(
            f"{file.path} is one of {parts} parts of a split model.", "Join them with `llama-gguf-split --merge`."
        )
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{file.path} holds a model of architecture {architecture!r}, which is not read out of GGUF files.",
            f"Architectures {', '.join(ARCHITECTURES)} are. Give the model as a safetensors folder.",
        )
    if file.get(f"{architecture}.expert_count", 0):
        raise UserError(
            f"{file.path} holds a mixture of experts, which is not read out of GGUF files.",
            "Give the model as a safetensors folder.",
        )
    return architecture


def eos_token_ids(file: GGUFFile) -> list[int]:
    """Every id that ends a generation: end of text, of turn and of message."""
    ids = [file.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    # Older files name only one of them; the vocabulary still holds the others under their usual names.
    tokens = file.get("tokenizer.ggml.tokens", [])
    for position, names in ((1, _END_OF_TURN), (2, _END_OF_MESSAGE)):
        if ids[position] is None:
            ids[position] = next((tokens.index(name) for name in names if name in tokens), None)
    return list(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _uniform(file: GGUFFile, architecture: str, key: str, default: int | None = None) -> int:
    full = f"{architecture}.{key}"
    value = file.require(full) if default is None else file.get(full, default)
    values = set(value) if isinstance(value, list) else {value}
    if len(values) != 1:
        raise UserError(
            f"{file.path} gives each layer its own {key}, which is not read out of GGUF files.",
            "Give the model as a safetensors folder.",
        )
    return int(values.pop())


def _vocab_size(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UserError(
            f"{file.path} has no tensor token_embd.weight.", "Give a GGUF file that holds a language model."
        )
    return embedding.shape[0]


def _rope_scaling(file: GGUFFile, architecture: str, config: dict[str, Any]) -> dict[str, Any] | None:
    if "rope_freqs.weight" in file.tensors:
        return _llama3_scaling(file, config)
    kind = file.get(f"{architecture}.rope.scaling.type", "none")
    factor = file.get(f"{architecture}.rope.scaling.factor", 1.0)
    if kind == "none" or factor in (0.0, 1.0):
        return None
    if kind not in ("linear", "yarn"):
        raise UserError(f"{file.path} scales rope by {kind!r}, which is not known.", "Use linear, yarn or llama3.")
    scaling = {"rope_type": kind, "factor": factor}
    original = file.get(f"{architecture}.rope.scaling.original_context_length")
    return {**scaling, "original_max_position_embeddings": original} if original else scaling


def _llama3_scaling(file: GGUFFile, config: dict[str, Any]) -> dict[str, Any]:
    """Llama 3's converter stores the outcome of its formula, one divisor a frequency; this finds its parameters."""
    tensor = file.tensors["rope_freqs.weight"]
    stored = struct.unpack_from(f"<{tensor.nbytes // 4}f", file.buffer, tensor.start)
    factor = round(max(stored), 4)
    expected = _llama3_divisors(factor, config["rope_theta"], 2 * len(stored))
    if any(abs(ours - theirs) > 1e-3 * ours for ours, theirs in zip(expected, stored, strict=True)):
        raise UserError(
            f"{file.path} has rope frequencies (rope_freqs.weight) that do not follow Llama 3's rule.",
            "Give the model as a safetensors folder.",
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }


def _llama3_divisors(factor: float, theta: float, dimensions: int) -> list[float]:
    divisors = []
    for index in range(0, dimensions, 2):
        wavelength = 2 * math.pi * theta ** (index / dimensions)
        smooth = (_LLAMA3_ORIGINAL / wavelength - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)
        smooth = min(max(smooth, 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return divisors
