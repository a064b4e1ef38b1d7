"""Tiny random models in transformers, and what they say: the truth our own logits are held against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPT_LENGTHS = (31, 9, 1, 50)


@dataclass(frozen=True)
class Truth:
    """A checkpoint, prompts, and transformers' eager float32 logits [len, V] of each prompt alone."""

    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    prompts: list[list[int]]
    logits: list[torch.Tensor]


def truth(folder: Path, model_type: str, **settings: Any) -> Truth:
    """Make a random model of the family, save it as a checkpoint, and ask it."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**SHAPE, **settings})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for parameter in model.parameters():
        spread = 0.3 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5
        parameter.data.normal_(0, spread)
    model.save_pretrained(folder)
    prompts = [torch.randint(3, SHAPE["vocab_size"], (length,)).tolist() for length in PROMPT_LENGTHS]
    with torch.inference_mode():
        logits = [model(torch.tensor([prompt])).logits[0] for prompt in prompts]
    saved = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    return Truth(json.loads((folder / "config.json").read_text()), saved, prompts, logits)
