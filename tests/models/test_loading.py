"""Streaming weights into a model: what is fused, tied, prepared, and what a wrong checkpoint is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import SHAPE

from anychip.errors import UserError
from anychip.models.layers import Linear
from anychip.models.loading import checkpoint_slots, load_weights
from anychip.models.model import Model
from anychip.models.registry import model_class
from anychip.ops.bind import bind
from anychip.weights.quantize import quantize
from anychip.weights.scheme import schemes
from anychip.weights.weight import Weight

CONFIG: dict[str, Any] = {"model_type": "llama", **SHAPE}


def build(config: dict[str, Any]) -> Model:
    family = model_class(config)
    return family(config, bind({}, family.op_spec(config, "float32", 16)), torch.float32)


def tensors_of(model: Model) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(slot.shape, generator=generator) for name, slot in checkpoint_slots(model).items()}


def unchanged(weight: Weight) -> Weight:
    return weight


def fill(model: Model, tensors: dict[str, torch.Tensor]) -> None:
    load_weights(model, iter(tensors.items()), "cpu", unchanged)


def test_quantized_matrices_are_prepared_where_they_will_be_used() -> None:
    model, seen = (
        build({**CONFIG, "tie_word_embeddings": True, "hidden_size": 96, "head_dim": 16, "intermediate_size": 64}),
        list[Weight](),
    )
    scheme = next(iter(schemes("int8")))
    matrices = {
        name: quantize(Weight(values, (values.shape[0], values.shape[1])), scheme) if values.dim() == 2 else values
        for name, values in tensors_of(model).items()
    }

    def noted(weight: Weight) -> Weight:
        seen.append(weight)
        return weight

    load_weights(model, iter(matrices.items()), "meta", noted)
    coded = [weight.quantization for weight in seen if weight.quantization is not None]
    assert len(coded) == len(seen) > 4
    assert {weight.values.device.type for weight in seen if weight.values is not None} == {"meta"}
    assert {each.scale.device.type for each in coded} == {"meta"}


def test_a_new_model_takes_no_memory_for_weights() -> None:
    model = build(CONFIG)
    assert all(parameter.is_meta for parameter in model.parameters())
    matrices = [module.weight.values for module in model.modules() if isinstance(module, Linear)]
    assert all(values is not None and values.is_meta for values in matrices)


def test_parts_are_fused_in_order_whatever_the_order_of_files() -> None:
    model = build(CONFIG)
    tensors = tensors_of(model)
    fill(model, dict(reversed(tensors.items())))
    qkv = model.get_submodule("model.layers.1.self_attn.qkv")
    assert isinstance(qkv, Linear)
    assert [part.name for part in qkv.weight.parts] == ["q_proj", "k_proj", "v_proj"]
    wanted = [tensors[f"model.layers.1.self_attn.{name}.weight"] for name in ("q_proj", "k_proj", "v_proj")]
    assert qkv.weight.values is not None
    assert torch.equal(qkv.weight.values, torch.cat(wanted))


def test_nothing_of_the_checkpoint_is_kept() -> None:
    model = build(CONFIG)
    tensors = tensors_of(model)
    fill(model, tensors)
    theirs = {tensor.data_ptr() for tensor in tensors.values()}
    assert not theirs & {parameter.data_ptr() for parameter in model.parameters()}


def test_one_tensor_is_alive_at_a_time() -> None:
    """The stream is asked for the next tensor only once the last one has its place."""
    model = build(CONFIG)
    slots = checkpoint_slots(model)

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in tensors_of(model).items():
            yield name, tensor
            slot = slots[name]
            value = getattr(slot.module, slot.attribute)
            values = value.values if isinstance(value, Weight) else value
            first = slot.first_row or 0
            assert torch.equal(values[first : first + slot.shape[0]], tensor)

    load_weights(model, stream(), "cpu", unchanged)


def test_each_linear_is_prepared_once_when_complete() -> None:
    model, seen = build(CONFIG), []

    def prepare(weight: Weight) -> Weight:
        assert weight.values is not None
        assert not weight.values.is_meta
        seen.append(weight.shape)
        return replace(weight, prepared="packed")

    load_weights(model, iter(tensors_of(model).items()), "cpu", prepare)
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    assert len(seen) == len(linears)
    assert all(module.weight.prepared == "packed" for module in linears)


@pytest.mark.parametrize("given", [False, True], ids=["absent", "given too"])
def test_tied_embeddings(given: bool) -> None:
    model = build({**CONFIG, "tie_word_embeddings": True, "hidden_size": 96, "head_dim": 16, "intermediate_size": 64})
    tensors = tensors_of(model)
    assert "lm_head.weight" not in tensors
    extra = {"lm_head.weight": torch.zeros(97, 48)} if given else {}
    fill(model, {**tensors, **extra})
    head = model.get_submodule("lm_head")
    assert isinstance(head, Linear)
    assert head.weight.values is not None
    assert head.weight.values.data_ptr() == model.get_parameter("model.embed_tokens.weight").data_ptr()


def test_tables_of_old_checkpoints_are_passed_over() -> None:
    model = build(CONFIG)
    fill(model, {**tensors_of(model), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})


@pytest.mark.parametrize("model_type", ["llama", "olmo2"])
def test_a_wrong_checkpoint_is_named(model_type: str) -> None:
    """The same for our families and for transformers' modules."""
    config = {**CONFIG, "model_type": model_type}
    good = tensors_of(build(config))
    name = "model.layers.2.mlp.up_proj.weight"
    fill(build(config), good)
    with pytest.raises(UserError, match=f"lacks {name}"):
        fill(build(config), {key: tensor for key, tensor in good.items() if key != name})
    with pytest.raises(UserError, match=r"holds model\.layers\.9\.x, which the model has no place for"):
        fill(build(config), {"model.layers.9.x": torch.zeros(1), **good})
    with pytest.raises(UserError, match=rf"holds {name} of shape \[48, 80\], where .* \[80, 48\]"):
        fill(build(config), {**good, name: torch.zeros(48, 80)})
    twice = iter([*good.items(), (name, good[name])])
    with pytest.raises(UserError, match=f"holds {name} twice"):
        load_weights(build(config), twice, "cpu", unchanged)
