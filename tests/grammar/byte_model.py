"""A model for the null platform whose tokens are bytes, and its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from anychip.text.tokenizer import Tokenizer

END = 256


def byte_backend() -> Backend:
    """A token a byte, and an end of sequence."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({**{letter: index for index, letter in enumerate(alphabet)}, "<end>": END}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return backend


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(byte_backend(), {"eos_token": "<end>"})


def write_byte_model(folder: Path) -> Path:
    """A folder that the null platform serves."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "vocab_size": END + 4, "max_position_embeddings": 2048, "eos_token_id": END}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    byte_backend().save(str(folder / "tokenizer.json"))
    return folder
