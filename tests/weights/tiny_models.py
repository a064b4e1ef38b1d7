"""Small checkpoints of the formats that are read, made on the spot."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_model(architecture: str, tied: bool = False) -> PreTrainedModel:
    """A random model of this architecture, biases included where it has them."""
    torch.manual_seed(0)
    configs = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True, tie_word_embeddings=tied)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=tied)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=32, tie_word_embeddings=tied)),
    }
    model = configs[architecture]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def gguf_name(name: str) -> str:
    """The name that llama.cpp's converter gives a parameter."""
    if name in _TOP:
        return _TOP[name]
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_LAYER[module]}.{kind}"


def interleave(values: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder query or key rows the way llama.cpp's converter does for the llama architecture."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    kind: str = "F32",
    rope_divisors: list[float] | None = None,
    extra: dict[str, np.ndarray] | None = None,
    **fields: int | float | str,
) -> Path:
    """Write a model as llama.cpp's converter would, matrices in this type; `fields` adds or replaces metadata."""
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": 500000.0,
    }
    for key, value in numbers.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    for key, value in fields.items():
        name = key.replace("__", ".")
        add_field = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add_field(name, value)
    if rope_divisors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(rope_divisors, dtype=np.float32))
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    for name, values in stored_parameters(model):
        quantization = gguf.GGMLQuantizationType[kind] if values.dim() > 1 else gguf.GGMLQuantizationType.F32
        array = gguf.quants.quantize(values.detach().numpy(), quantization)
        writer.add_tensor(gguf_name(name), array, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_parameters(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """Parameters in the row order of the file, under their Hugging Face names."""
    config = model.config
    stored = []
    for name, values in model.named_parameters():
        if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = interleave(values, heads)
        stored.append((name, values))
    return stored
