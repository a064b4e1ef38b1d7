"""A tiny random encoder, written to a folder: what `tiny_model` is for models that generate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from anychip.testing.tiny_model import VOCAB_SIZE, rounded

MAX_MODEL_LEN = 64
LAYERS, HEADS, HIDDEN, INNER = 2, 4, 64, 96


def write_tiny_encoder(folder: Path) -> Path:
    """Write config.json and model.safetensors of a BERT without a head. The folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": MAX_MODEL_LEN,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(_weights(), folder / "model.safetensors", {"format": "pt"})
    return folder


def _weights() -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(17)

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return rounded(random.standard_normal((rows, columns)) * 2 * columns**-0.5)

    def around(center: float, size: int) -> npt.NDArray[np.float32]:
        return rounded(center + 0.1 * random.standard_normal(size))

    shapes = {f"embeddings.{name}_embeddings": rows for name, rows in _TABLES.items()}
    weights = {f"{name}.weight": rounded(random.standard_normal((rows, HIDDEN))) for name, rows in shapes.items()}
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
        for name, rows, columns in _MATRICES:
            weights[f"{prefix}{name}.weight"] = matrix(rows, columns)
            weights[f"{prefix}{name}.bias"] = around(0, rows)
    for name in norms:
        weights |= {f"{name}.weight": around(1, HIDDEN), f"{name}.bias": around(0, HIDDEN)}
    return weights


_TABLES = {"word": VOCAB_SIZE, "position": MAX_MODEL_LEN, "token_type": 2}
_MATRICES = (
    *((f"attention.self.{name}", HIDDEN, HIDDEN) for name in ("query", "key", "value")),
    ("attention.output.dense", HIDDEN, HIDDEN),
    ("intermediate.dense", INNER, HIDDEN),
    ("output.dense", HIDDEN, INNER),
)
