"""A tiny random model with a tokenizer, written to a folder: the same bytes for every platform, without a network.

Values are rounded to bfloat16 before they are stored, so that every type reads the same model. They are larger than a
trained model's: attention must be far from uniform for a wrong key to show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

Attention = Literal["full", "sliding"]

VOCAB_SIZE = 97
"""No power of two, and no multiple of a tile."""
MAX_MODEL_LEN = 256
WINDOW = 24
LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER = 2, 4, 2, 64, 128, 192
END_OF_SEQUENCE = VOCAB_SIZE - 1
GAIN = 2.0


def write_tiny_model(folder: Path, attention: Attention = "full", length: int = MAX_MODEL_LEN) -> Path:
    """Write config.json, model.safetensors and tokenizer.json; word `wN` is token N. The folder.

    It takes sequences of up to `length` tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(attention, length), indent=1))
    save_file(_weights(), folder / "model.safetensors", {"format": "pt"})
    tokenizer = Tokenizer(models.WordLevel({f"w{token}": token for token in range(VOCAB_SIZE)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _config(attention: Attention, length: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": END_OF_SEQUENCE,
        "torch_dtype": "float32",
    }
    if attention == "sliding":
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": WINDOW}
    return config


def _weights() -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> npt.NDArray[np.float32]:
        return rounded(random.standard_normal((rows, columns)) * gain * columns**-0.5)

    def norm() -> npt.NDArray[np.float32]:
        return rounded(1 + 0.1 * random.standard_normal(HIDDEN))

    weights = {"model.embed_tokens.weight": rounded(random.standard_normal((VOCAB_SIZE, HIDDEN)))}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN, GAIN),
            prefix + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN, GAIN),
            prefix + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM, GAIN),
            prefix + "post_attention_layernorm.weight": norm(),
            prefix + "mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            prefix + "mlp.up_proj.weight": matrix(INNER, HIDDEN),
            prefix + "mlp.down_proj.weight": matrix(HIDDEN, INNER),
        }
    return weights | {"model.norm.weight": norm(), "lm_head.weight": matrix(VOCAB_SIZE, HIDDEN, GAIN)}


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """To the nearest bfloat16, ties away from zero."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
