"""From a model's config and files to a module on the device: types, ops, weight streams, lowering."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from anychip.cache.storage import stored_as
from anychip.config import EngineConfig
from anychip.engine.task import model_task
from anychip.errors import UserError
from anychip.models.layers import Linear
from anychip.models.loading import checkpoint_slots
from anychip.models.model import Model
from anychip.models.pooled import classifying_model, embedding_model
from anychip.models.registry import model_class
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import Capabilities, KVSpec, ModelSource, Progress
from anychip.weights.dequantize import NATIVE_DTYPES
from anychip.weights.dummy import DummyWeights
from anychip.weights.gguf import read_gguf
from anychip.weights.gguf_quantized import FORMATS
from anychip.weights.safetensors import read_safetensors
from anychip.weights.scheme import formats_of
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

LOADING = "loading weights"


def choose_dtype(config: EngineConfig, source: ModelSource, capabilities: Capabilities) -> str:
    """The type to compute in: the one asked for, else the checkpoint's or, if the platform lacks that, its first."""
    if config.dtype != "auto":
        return config.dtype
    stored = source.config.get("dtype") or source.config.get("torch_dtype")
    if source.kind == "safetensors" and stored in capabilities.dtypes:
        return str(stored)
    return capabilities.dtypes[0]


def build_model(platform: TorchPlatform, config: EngineConfig, source: ModelSource) -> tuple[Model, Ops, OpSpec]:
    """The model on the meta device, its bound ops, and their spec. Raises `UserError` for what cannot run here."""
    capabilities = platform.capabilities
    dtype = choose_dtype(config, source, capabilities)
    extra = {str(source.config.get("model_type")): source.model_class} if source.model_class else {}
    family = model_class(source.config, extra)
    spec = family.op_spec(source.config, dtype, config.block_size or capabilities.block_sizes[0])
    kv_dtype = "" if config.kv_cache_dtype == "auto" else config.kv_cache_dtype
    spec = replace(spec, kv_dtype=kv_dtype, weight_formats=_formats_in_use(config, source, family, capabilities))
    ops = bind(platform.kernels(spec), spec, strict=config.strict_kernels, refused=capabilities.refused_references)
    model = _model(family, config, source, ops, dtype_of(dtype))
    model.kv_specs = _stored(model.kv_specs, config.kv_cache_dtype)
    return model, ops, spec


def _stored(specs: tuple[KVSpec, ...], dtype: str) -> tuple[KVSpec, ...]:
    """The layers' caches, stored as `dtype` or `auto`. Raises `UserError` for a kind of cache that cannot be."""
    stored = tuple(stored_as(spec, dtype) for spec in specs)
    fixed = [spec for spec, before in zip(stored, specs, strict=True) if spec == before and spec.kind != "none"]
    if dtype != "auto" and fixed:
        raise UserError(
            f"This model has {fixed[0].kind} layers, whose cache has no {dtype}.", "Leave out --kv-cache-dtype."
        )
    return stored


def _model(family: type[Model], config: EngineConfig, source: ModelSource, ops: Ops, dtype: torch.dtype) -> Model:
    """The family's model, with a pooling at its end where the task asks for one."""
    task = model_task(config, source)
    if task == "generate" and not family.generates:
        raise UserError(f"{source.name} is an encoder, which generates no text.", "Use --task embed.")
    body = family(source.config, ops, dtype, config.max_model_len)
    if task == "generate":
        return body
    if task == "classify":
        return classifying_model(body, source.config, ops, dtype)
    files = source.sentence
    given = files.pooling if files is not None and config.pooling == "auto" else None
    model = embedding_model(body, given if config.pooling == "auto" else config.pooling, dtype)
    if files is not None and files.max_seq_length:
        model.max_model_len = min(model.max_model_len, files.max_seq_length)
    return model


def _formats_in_use(
    config: EngineConfig, source: ModelSource, family: type[Model], capabilities: Capabilities
) -> tuple[str, ...]:
    """Quantized formats of the weights that the platform will get; () where they are dequantized first.

    Raises `UserError` where the platform lacks the asked format and strict kernels were asked for.
    """
    if config.quantization is None:
        plain = config.dtype != "auto" or family.translate is not Model.translate or config.load_format == "dummy"
        stored = {FORMATS.get(name) for name in source.config.get("weight_types", ())}
        return () if plain else tuple(name for name in capabilities.weight_formats if name in stored)
    if config.quantization in capabilities.weight_formats:
        return tuple(name for name in formats_of(config.quantization) if name in capabilities.weight_formats)
    if config.strict_kernels:
        raise UserError(
            f"Strict kernels: this platform has none for {config.quantization} weights.",
            f"Leave out --strict-kernels to round to {config.quantization} and compute in the model's type.",
        )
    return ()


def dequantized_note(source: ModelSource, spec: OpSpec) -> str:
    """A line for the start-up log about formats of a GGUF file that are dequantized; empty if none is."""
    types = [name for name in source.config.get("weight_types", ()) if name not in NATIVE_DTYPES]
    lost = [name for name in types if FORMATS.get(name) not in spec.weight_formats]
    return f"weights: {', '.join(lost)} dequantized to {spec.dtype}" if lost else ""


def weight_stream(
    model: Model, config: EngineConfig, source: ModelSource, spec: OpSpec, device: torch.device, progress: Progress
) -> Iterator[tuple[str, torch.Tensor | Weight]]:
    """The checkpoint's tensors by name, one at a time.

    Those in a format of the spec's stay quantized, unless the config asks to quantize anew. Raises `UserError` for
    files that `--load-format` does not name, or that cannot be read.
    """
    if config.load_format == "dummy":
        return _dummy_stream(model, dtype_of(spec.dtype), device, progress)
    if config.load_format not in ("auto", source.kind):
        raise UserError(
            f"{source.name} holds {source.kind} weights, not {config.load_format}.", "Leave --load-format out."
        )

    def report(done: int, total: int) -> None:
        progress(LOADING, done, total)

    if source.kind == "gguf":
        return read_gguf(source.path, report, () if config.quantization else spec.weight_formats)
    return read_safetensors(source.path, report)


def _dummy_stream(
    model: Model, dtype: torch.dtype, device: torch.device, progress: Progress
) -> Iterator[tuple[str, torch.Tensor | Weight]]:
    slots, weights = checkpoint_slots(model), DummyWeights(dtype, device)
    for index, (name, slot) in enumerate(slots.items()):
        tensor = torch.empty(slot.shape, dtype=dtype, device=device)
        weights.fill(name, tensor, seed=index)
        progress(LOADING, index + 1, len(slots))
        yield name, tensor


def lower_model(platform: TorchPlatform, model: Model, spec: OpSpec) -> Model:
    """Offer each module to the platform's `lower`, from the root down; nothing inside a replaced one is offered."""
    replaced = platform.lower(model, spec)
    if replaced is not None:
        assert isinstance(replaced, Model), "a platform lowered the model to something that is none"
        return replaced
    _lower_children(platform, model, spec)
    return model


def _lower_children(platform: TorchPlatform, parent: nn.Module, spec: OpSpec) -> None:
    for name, child in parent.named_children():
        replaced = platform.lower(child, spec)
        if replaced is None:
            _lower_children(platform, child, spec)
        else:
            setattr(parent, name, replaced)


def model_bytes(model: Model) -> int:
    """Bytes of parameters, buffers and matrices, each counted once, before they are quantized or repacked."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [
        module.weight.values
        for module in model.modules()
        if isinstance(module, Linear) and module.weight.values is not None
    ]
    return sum({id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}.values())
