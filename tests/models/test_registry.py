"""Which class runs a config, and how those that cannot run are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.tiny import SHAPE

from anychip.errors import UserError
from anychip.models.fallback import FallbackModel
from anychip.models.llama import LlamaModel
from anychip.models.qwen2 import Qwen2Model
from anychip.models.registry import MODELS, model_class


def op_spec(model_type: str, **settings: Any) -> Any:
    config = {"model_type": model_type, **SHAPE, **settings}
    return model_class(config).op_spec(config, "float32", 16)


def test_families_by_type() -> None:
    assert model_class({"model_type": "llama"}) is LlamaModel
    assert model_class({"model_type": "gemma2"}) is FallbackModel
    homes = {"camembert": "roberta", "xlm-roberta": "roberta"}
    for name in MODELS:
        assert model_class({"model_type": name}).__module__ == f"anychip.models.{homes.get(name, name)}"


def test_a_plugin_brings_a_family_or_takes_one_over() -> None:
    extra = {"new": "anychip.models.qwen2:Qwen2Model", "llama": "anychip.models.qwen2:Qwen2Model"}
    assert model_class({"model_type": "new"}, extra) is Qwen2Model
    assert model_class({"model_type": "llama"}, extra) is Qwen2Model
    with pytest.raises(UserError, match="no anychip model class"):
        model_class({"model_type": "new"}, {"new": "anychip.models.layers:Linear"})


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"model_type": ""}, {"model_type": 3}])
def test_a_config_without_a_type(config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="names no model_type"):
        model_class(config)


REFUSED = [
    ("mamba", {}, "linear_attention"),
    ("bloom", {"n_layer": 3, "n_head": 6}, "attention interface"),
    ("deepseek_v3", {}, "differ in size"),
    ("llama4_text", {}, "chunked_attention"),
    ("stablelm", {}, "hand its keyword arguments on"),
    ("falcon", {}, "'falcon' cannot run here"),
    ("electra", {}, "not causal"),
    ("bart", {}, "'bart'"),
    ("t5", {}, "no causal language model of type 't5'"),
    ("no_such_model", {}, "no causal language model of type 'no_such_model'"),
]


@pytest.mark.parametrize(("model_type", "settings", "why"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_what_cannot_run_is_refused_by_name(model_type: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refusal:
        op_spec(model_type, **settings)
    assert model_type in str(refusal.value)


def test_code_in_a_checkpoint_is_not_run() -> None:
    config = {
        "model_type": "custom",
        "auto_map": {"AutoModelForCausalLM": "modeling_custom.CustomForCausalLM"},
        **SHAPE,
    }
    with pytest.raises(UserError, match="never run"):
        model_class(config).op_spec(config, "float32", 16)


BAD = [
    ({"num_attention_heads": None}, "num_attention_heads"),
    ({"hidden_size": "48"}, "hidden_size"),
    ({"vocab_size": 0}, "vocab_size"),
    ({"num_hidden_layers": True}, "num_hidden_layers"),
    ({"num_key_value_heads": 4}, "no multiple"),
    ({"hidden_act": "relu6"}, "'relu6'"),
]


@pytest.mark.parametrize(("settings", "why"), BAD, ids=[why for _, why in BAD])
def test_a_bad_config_is_a_sentence(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        op_spec("llama", **settings)


def test_a_config_that_transformers_rejects_is_a_sentence() -> None:
    with pytest.raises(UserError, match="gemma"):
        op_spec("gemma", num_attention_heads="many")


def test_the_spec_is_known_before_the_model_is_built() -> None:
    spec = op_spec("gpt_oss", head_dim=8, sliding_window=5, num_local_experts=4)
    assert (spec.head_dim, spec.num_kv_heads, spec.windows, spec.sinks) == (8, 2, (5,), True)
    assert op_spec("gemma2", head_dim=8).softcap
    assert op_spec("qwen3").head_dim == 128
    assert op_spec("mistral").windows == (4096,)
    assert op_spec("qwen2", sliding_window=7).windows == ()


def test_a_shorter_limit_makes_a_smaller_table() -> None:
    from anychip.ops.bind import bind

    config = {"model_type": "llama", **SHAPE}
    model = LlamaModel(config, bind({}, op_spec("llama")), torch.float32, max_model_len=32)
    assert model.get_buffer("model.table").shape[0] == 32
    assert model.max_model_len == 256


def test_length_dependent_rotation_limits_a_fallback_model() -> None:
    from anychip.models.fallback_shape import probe

    factors = [1.0] * 4
    longrope = {"type": "longrope", "short_factor": factors, "long_factor": factors}
    config = {
        "model_type": "phi3", **SHAPE, "original_max_position_embeddings": 64, "rope_scaling": longrope,
    }  # fmt: skip
    assert probe(config, torch.float32).max_model_len == 64
