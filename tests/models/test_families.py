"""Logits of the families written for anychip and of transformers' own modules, against transformers in float32."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.harness import Rows, load, relative_error, steps
from tests.models.tiny import SHAPE, truth

from anychip.models.decoder import DecoderModel
from anychip.models.fallback import FallbackModel

LIMIT = 1e-5

SCHEDULES: dict[str, Callable[[int], Iterator[int]]] = {
    "whole": lambda row: itertools.repeat(1000),
    "chunked": lambda row: itertools.repeat(5 + row),
    "decode": lambda row: itertools.chain([7], itertools.repeat(1)),
}
"""How many tokens each row takes a step; ragged in all but the first step of `whole`."""

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

OURS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"}),
    ("llama", {"rope_scaling": LLAMA3}),
    ("llama", {"rope_scaling": YARN, "num_key_value_heads": 6}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 12}),
    ("qwen3_moe", {**SPARSE, "head_dim": 8}),
    ("qwen3_moe", {**SPARSE, "head_dim": 8, "norm_topk_prob": True, "mlp_only_layers": [0]}),
    ("qwen2_moe", {**SPARSE, "shared_expert_intermediate_size": 32, "decoder_sparse_step": 2}),
    ("mistral", {"sliding_window": 5, "head_dim": 16}),
    ("mistral", {"sliding_window": None}),
]

THEIRS: list[tuple[str, dict[str, Any]]] = [
    ("gemma", {"head_dim": 8}),
    ("gemma2", {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8}),
    ("gemma3_text", {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8, "num_hidden_layers": 7}),
    ("phi", {}),
    ("phi3", {"sliding_window": 6}),
    ("olmo2", {}),
    ("granite", {"logits_scaling": 3.0, "attention_multiplier": 0.2, "embedding_multiplier": 2.0}),
    ("starcoder2", {"sliding_window": 6}),
    ("gpt_neox", {"num_key_value_heads": None}),
    ("gpt2", {"n_embd": 48, "n_head": 6, "n_layer": 3}),
    ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 48}),
    ("cohere", {}),
    ("cohere2", {"sliding_window": 5, "num_hidden_layers": 5}),
    ("mixtral", {"num_local_experts": 4, "sliding_window": None}),
    ("granitemoe", {"num_local_experts": 4}),
    ("gpt_oss", {"head_dim": 8, "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("smollm3", {}),
    ("ernie4_5", {"head_dim": 8}),
    ("glm4", {"head_dim": 8}),
    ("exaone4", {"sliding_window": 5, "num_hidden_layers": 5, "sliding_window_pattern": 4}),
    ("helium", {"head_dim": 8}),
]
"""Softcaps, sinks, windows, experts, learned positions, partial rotation, scaled logits: of each kind one at least."""


def named(families: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Parameters with an id each: a family has several where its settings differ."""
    return [pytest.param(name, settings, id=f"{name}-{index}") for index, (name, settings) in enumerate(families)]


@pytest.mark.parametrize(("model_type", "settings"), [*named(OURS), *named(THEIRS)])
def test_logits_equal_transformers(model_type: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Whole, in chunks and a token at a time, four requests together, each equal to transformers alone."""
    wanted = truth(tmp_path, model_type, **settings)
    shuffled = list(wanted.tensors.items())
    random.Random(0).shuffle(shuffled)
    model, ops = load(wanted.config, dict(shuffled))
    assert isinstance(model, DecoderModel if (model_type, settings) in OURS else FallbackModel)
    for name, schedule in SCHEDULES.items():
        for found, logits in zip(steps(model, ops, wanted.prompts, schedule), wanted.logits, strict=True):
            assert relative_error(found, logits) < LIMIT, name


def test_windows_and_full_layers_make_groups(tmp_path: Path) -> None:
    wanted = truth(tmp_path, "gemma2", head_dim=8, sliding_window=5, query_pre_attn_scalar=8)
    model, _ = load(wanted.config, wanted.tensors)
    assert [spec.kind for spec in model.kv_specs] == ["sliding", "full", "sliding"]
    assert [spec.window for spec in model.kv_specs] == [5, None, 5]


@pytest.mark.parametrize("model_type", ["llama", "gemma"])
def test_a_shuffled_table_is_noticed(model_type: str, tmp_path: Path) -> None:
    """Negative control: the comparison fails when cached tokens are read from other blocks."""
    wanted = truth(tmp_path, model_type, **({"head_dim": 8} if model_type == "gemma" else {}))
    model, ops = load(wanted.config, wanted.tensors)
    rows = Rows(model, ops, len(wanted.prompts))
    prompt = wanted.prompts[0]
    first = rows.step({0: prompt[:16], 3: wanted.prompts[3][:16]})[0]
    assert relative_error(first, wanted.logits[0][:16]) < LIMIT
    rows.tables = rows.tables[[3, 1, 2, 0]]
    second = rows.step({0: prompt[16:]})[0]
    assert relative_error(second, wanted.logits[0][16:]) > 0.01


def test_another_rows_tokens_are_noticed(tmp_path: Path) -> None:
    """Negative control: rows that shared a cache would not pass."""
    wanted = truth(tmp_path, "llama")
    model, ops = load(wanted.config, wanted.tensors)
    rows = Rows(model, ops, 2)
    rows.tables[1] = rows.tables[0]
    found = rows.step({0: wanted.prompts[0], 1: wanted.prompts[3]})
    assert relative_error(found[0], wanted.logits[0]) > 0.01


def test_a_short_type_stays_close(tmp_path: Path) -> None:
    """bfloat16 against float32 on the same rounded weights."""
    wanted = truth(tmp_path, "llama")
    rounded = {name: tensor.bfloat16() for name, tensor in wanted.tensors.items()}
    exact, ops = load(wanted.config, rounded)
    short, short_ops = load(wanted.config, rounded, dtype="bfloat16")
    assert short.logits(torch.zeros(1, SHAPE["hidden_size"], dtype=torch.bfloat16)).dtype == torch.bfloat16
    for left, right in zip(
        steps(short, short_ops, wanted.prompts, SCHEDULES["chunked"]),
        steps(exact, ops, wanted.prompts, SCHEDULES["chunked"]),
        strict=True,
    ):
        assert relative_error(left, right) < 3e-2
