"""Filling a model with a checkpoint's tensors, one at a time, so that memory peaks at the model plus one tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from anychip.errors import UserError
from anychip.models.layers import Linear
from anychip.models.model import Model
from anychip.weights.concatenate import concatenate
from anychip.weights.weight import Weight

NOT_WEIGHTS = re.compile(r"(rotary_emb\.inv_freq|rope_freqs\.weight|\.masked_bias|\.attn\.bias|\.attention\.bias)$")
"""Tensors of old checkpoints that are skipped: tables that modules compute."""

Prepare = Callable[[Weight], Weight]
"""Called with each complete matrix; returns what its `Linear` keeps."""
Tensor = torch.Tensor | Weight
"""What a checkpoint holds: plain values, or a quantized matrix."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one checkpoint tensor goes: a parameter, a buffer, or a `Linear`'s weight, or some rows of it."""

    module: nn.Module
    attribute: str
    shape: tuple[int, ...]
    first_row: int | None = None
    """The row at which it begins, of a tensor fused of several; None: it is the whole tensor."""


def load_weights(
    model: Model, stream: Iterator[tuple[str, Tensor]], device: torch.device | str, prepare: Prepare
) -> None:
    """Fill `model` on `device` from named checkpoint tensors, in any order; also move the tables that it computes.

    Each `Linear`'s weight passes through `prepare` once it is complete; it is quantized if all its parts are, in the
    same way. Raises `UserError` that names a tensor which is missing, unknown, given twice or of another shape.
    """
    slots = checkpoint_slots(model)
    waiting = {id(slot.module): 0 for slot in slots.values()}
    for slot in slots.values():
        waiting[id(slot.module)] += 1
    given: set[str] = set()
    quantized = _Quantized(torch.device(device))
    for name, tensor in model.translate(stream):
        if name not in slots:
            _check_ignorable(model, name)
            continue
        slot = slots[name]
        _check(name, tensor, slot, given)
        given.add(name)
        if isinstance(tensor, Weight):
            quantized.take(slot, tensor)
        else:
            _fill(slot, tensor, torch.device(device))
        waiting[id(slot.module)] -= 1
        if not waiting[id(slot.module)] and isinstance(slot.module, Linear):
            quantized.complete(slot.module)
            slot.module.weight = prepare(slot.module.weight)
    if missing := [name for name in slots if name not in given]:
        raise _bad_checkpoint(f"lacks {_some(missing)}")
    _tie(model, prepare, quantized)
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer.to(device))


def checkpoint_slots(model: Model) -> dict[str, Slot]:
    """The checkpoint tensors that `model` needs, by name, with their places. A tied layer needs none."""
    slots: dict[str, Slot] = {}
    for path, module in model.named_modules(remove_duplicate=True):
        if path in model.ties:
            continue
        path = path.removeprefix(model.root)
        if isinstance(module, Linear):
            slots.update(_linear_slots(path, module))
            continue
        prefix = f"{path}." if path else ""
        slots.update({prefix + name: Slot(module, name, tuple(tensor.shape)) for name, tensor in _own_tensors(module)})
    return slots


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers of the module itself."""
    yield from module.named_parameters(recurse=False)
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set:
            yield name, buffer


def _linear_slots(path: str, module: Linear) -> Iterator[tuple[str, Slot]]:
    parent = path.rpartition(".")[0]
    prefix, row = f"{parent}." if parent else "", 0
    for part in module.weight.parts:
        yield f"{prefix}{part.name}.weight", Slot(module, "weight", (part.rows, module.weight.shape[1]), row)
        if module.bias is not None:
            yield f"{prefix}{part.name}.bias", Slot(module, "bias", (part.rows,), row)
        row += part.rows


def _fill(slot: Slot, tensor: torch.Tensor, device: torch.device) -> None:
    """Copy; the checkpoint's own memory (a mapped file) is never kept."""
    value = getattr(slot.module, slot.attribute)
    if isinstance(value, Weight):
        assert value.values is not None, "filled after it was prepared"
        if value.values.is_meta:
            value = replace(value, values=torch.empty(value.values.shape, dtype=value.values.dtype, device=device))
            setattr(slot.module, slot.attribute, value)
        target = value.values
    else:
        if value.is_meta or value.device != device:
            empty = torch.empty(value.shape, dtype=value.dtype, device=device)
            value = nn.Parameter(empty, requires_grad=False) if isinstance(value, nn.Parameter) else empty
            setattr(slot.module, slot.attribute, value)
        target = value.data
    assert target is not None, "a weight without values"
    if slot.first_row is not None:
        target = target[slot.first_row : slot.first_row + slot.shape[0]]
    target.copy_(tensor)


class _Quantized:
    """Quantized tensors on their way into a model: a `Linear`'s parts wait here until all are there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.parts: dict[int, list[tuple[Slot, Weight]]] = {}
        self.owners: dict[int, Weight] = {}
        """By module that is no `Linear`: the matrix it was filled from, for those tied to it."""

    def take(self, slot: Slot, weight: Weight) -> None:
        """Keep a part of a `Linear` until all are there; anything else is filled with plain values."""
        weight = weight.to(self.device)
        if isinstance(slot.module, Linear):
            self.parts.setdefault(id(slot.module), []).append((slot, weight))
            return
        self.owners[id(slot.module)] = weight
        _fill(slot, weight.dequantize(getattr(slot.module, slot.attribute).dtype), self.device)

    def complete(self, linear: Linear) -> None:
        """Make one quantized weight of the parts, or plain values where they differ."""
        parts = sorted(self.parts.pop(id(linear), []), key=lambda part: part[0].first_row or 0)
        if not parts:
            return
        whole = concatenate([weight for _, weight in parts])
        if whole is not None and whole.shape == linear.weight.shape:
            linear.weight = _with_quantized(linear.weight, whole)
            return
        values = linear.weight.values
        assert values is not None, "prepared before it was complete"
        for slot, weight in parts:
            _fill(slot, weight.dequantize(values.dtype), self.device)


def _with_quantized(weight: Weight, quantized: Weight) -> Weight:
    return replace(weight, values=quantized.values, quantization=quantized.quantization)


def _tie(model: Model, prepare: Prepare, quantized: _Quantized) -> None:
    """Give each tied `Linear` the values of the module that owns them."""
    for path, owner in model.ties.items():
        linear, source = model.get_submodule(path), model.get_submodule(owner)
        values = source.weight
        assert isinstance(linear, Linear), f"{path} is tied and no Linear"
        assert isinstance(values, torch.Tensor), f"{owner} owns no plain weight"
        matrix = quantized.owners.get(id(source))
        plain = replace(linear.weight, values=values.data)
        linear.weight = prepare(plain if matrix is None else _with_quantized(linear.weight, matrix))


def _check(name: str, tensor: Tensor, slot: Slot, given: set[str]) -> None:
    if name in given:
        raise _bad_checkpoint(f"holds {name} twice")
    if tuple(tensor.shape) != slot.shape:
        raise _bad_checkpoint(f"holds {name} of shape {list(tensor.shape)}, where the config means {list(slot.shape)}")


def _check_ignorable(model: Model, name: str) -> None:
    """Raise unless a tensor without a place is known to be superfluous."""
    tied = any(f"{model.root}{name}" == f"{path}.weight" for path in model.ties)
    if not (tied or NOT_WEIGHTS.search(name) or model.is_superfluous(name)):
        raise _bad_checkpoint(f"holds {name}, which the model has no place for")


def _bad_checkpoint(what: str) -> UserError:
    return UserError(
        f"The checkpoint {what}.", "Its config.json and its weights do not belong together, or a file is missing."
    )


def _some(names: list[str], limit: int = 3) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more tensors" if rest > 0 else "")
