"""A tiny random BERT that classifies, with its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.models.tiny_pairs import write_tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification

VOCABULARY = 97


def write_classifier(folder: Path, labels: int, **settings: Any) -> Any:
    """Write the model with `labels` labels; the model itself. Word `wN` is token N."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "bert",
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        max_position_embeddings=64,
        num_labels=labels,
        **settings,
    )
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    write_tokenizer(folder, VOCABULARY)
    return model
