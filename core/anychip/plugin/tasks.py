"""What a model can be asked for, and how it makes one vector of a text. Part of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Task = Literal["generate", "embed", "classify", "score"]
"""What a loaded model can be asked for."""
PoolingKind = Literal["mean", "cls", "last"]
"""What becomes of a prompt's hidden states: their mean, the first one, or the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceFiles:
    """How a model makes embeddings, as sentence-transformers writes it down."""

    pooling: PoolingKind | None = None
    normalize: bool = False
    max_seq_length: int | None = None
    """Tokens of the longest text."""
    lower_case: bool = False
    prompts: Mapping[str, str]
    """By name: what to put before a text, depending on what it is for."""
    default_prompt: str = ""
    """Name of the prompt that texts get unless another one is named; empty for none."""
    similarity: str = "cosine"
