"""Rotary tables against transformers' own frequencies, in both spellings of the config."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from anychip.errors import UserError
from anychip.models.rotary import FREQUENCIES, read_rope, rotary_table

HEAD_DIM = 32
MAX_POSITION = 512
SETTINGS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "truncate": False, "beta_fast": 8},
    {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.7,
        "mscale_all_dim": 1.1,
    },
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 0.9},
    {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(HEAD_DIM // 2)],
        "long_factor": [2.0 + pair for pair in range(HEAD_DIM // 2)],
        "original_max_position_embeddings": 64,
    },
]


def transformers_table(settings: dict[str, Any], theta: float, length: int) -> torch.Tensor:
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=MAX_POSITION,
        rope_parameters={"rope_theta": theta, **settings},
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(length)[None])
    half = HEAD_DIM // 2
    return torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=-1)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: str(settings["rope_type"]))
@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
def test_tables_equal_transformers(settings: dict[str, Any], old: bool) -> None:
    theta = 500000.0
    if old:
        kind = {
            "type": settings["rope_type"],
            **{name: value for name, value in settings.items() if name != "rope_type"},
        }
        config = {"rope_theta": theta, "rope_scaling": None if settings["rope_type"] == "default" else kind}
    else:
        config = {"rope_parameters": {"rope_theta": theta, **settings}}
    rope = read_rope(config, HEAD_DIM, MAX_POSITION)
    length = min(MAX_POSITION, rope.max_model_len)
    torch.testing.assert_close(rotary_table(rope, length), transformers_table(settings, theta, length))


def test_every_kind_is_compared() -> None:
    assert {settings["rope_type"] for settings in SETTINGS} == set(FREQUENCIES)


def test_a_length_dependent_kind_serves_what_does_not_depend() -> None:
    longrope = read_rope({"rope_parameters": SETTINGS[-1]}, HEAD_DIM, MAX_POSITION)
    assert longrope.max_model_len == 64
    yarn = read_rope({"rope_scaling": SETTINGS[4]}, HEAD_DIM, 64)
    assert yarn.max_model_len == 512


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="'spiral'"):
        read_rope({"rope_scaling": {"type": "spiral", "factor": 2.0}}, HEAD_DIM, MAX_POSITION)


def test_partial_rotation_turns_part_of_a_head() -> None:
    assert read_rope({"partial_rotary_factor": 0.25}, HEAD_DIM, MAX_POSITION).rotary == 8
