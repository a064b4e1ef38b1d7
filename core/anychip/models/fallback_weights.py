"""Checkpoint names and layouts -> those of transformers' modules, as transformers itself maps them, but streaming.

Some of its modules hold fused tensors (all experts of a layer) where checkpoints hold many. The many are kept until
they are complete, then fused: peak memory is the model plus the largest fused tensor, twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import torch

Stream = Iterator[tuple[str, torch.Tensor]]


class Translation:
    """How one module's checkpoint is read. `shapes` are the module's own names, each with its tensor's shape."""

    def __init__(self, module: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.module, self.shapes = module, shapes
        transforms = conversions(module)
        self.converters = [item for item in transforms if _fuses(item)]
        self.renamings = [item for item in transforms if not _fuses(item)]
        self.gathered: dict[str, tuple[Any, list[tuple[str, str, torch.Tensor]]]] = {}

    def translate(self, stream: Stream) -> Stream:
        """Yield tensors under the module's names. Call once."""
        for given, tensor in stream:
            name = self.own_name(given)
            if name not in self.shapes:
                name = self.renamed(given)
            match = None if name in self.shapes and name == given else self.converter(name)
            if match is None:
                yield self.own_name(name), tensor
            else:
                yield from self.gather(given, tensor, *match)
        for target in list(self.gathered):
            yield from self.fuse(target)

    def own_name(self, name: str) -> str:
        """`name` with or without the body's prefix, whichever the module knows."""
        prefix = f"{self.module.base_model_prefix}."
        for candidate in (name, prefix + name, name.removeprefix(prefix)):
            if candidate in self.shapes:
                return candidate
        return name

    def renamed(self, name: str) -> str:
        """`name` after every renaming that matches."""
        for renaming in self.renamings:
            name = renaming.rename_source_key(name)[0]
        return name

    def converter(self, name: str) -> tuple[Any, str, str] | None:
        """(converter, source pattern, target name) of the first converter that takes `name`."""
        for converter in self.converters:
            target, pattern = converter.rename_source_key(name)
            if pattern is not None:
                return converter, pattern, self.own_name(target)
        return None

    def gather(self, name: str, tensor: torch.Tensor, converter: Any, pattern: str, target: str) -> Stream:
        """Keep one source of `target`; yields the result once the last has come."""
        _, sources = self.gathered.setdefault(target, (converter, []))
        sources.append((name, pattern, tensor))
        each = self.shapes[target][0] if target in self.shapes and "*" in pattern else 1
        if len(sources) == each * len(converter.source_patterns):
            yield from self.fuse(target)

    def fuse(self, target: str) -> Stream:
        """Convert the gathered sources, in the natural order of their names."""
        from transformers.core_model_loading import dot_natural_key

        original, sources = self.gathered.pop(target)
        converter = deepcopy(original)
        for name, pattern, tensor in sorted(sources, key=lambda source: dot_natural_key(source[0])):
            converter.add_tensor(target, name, pattern, tensor)
        sources.clear()
        for name, tensor in converter.convert(target, model=self.module, config=self.module.config).items():
            yield self.own_name(name), tensor[0] if isinstance(tensor, list) else tensor


def conversions(module: Any) -> list[Any]:
    """transformers' own transforms for the module; before its version 5 modules and checkpoints were alike."""
    if find_spec("transformers.conversion_mapping") is None:
        return []
    from transformers.conversion_mapping import get_model_conversion_mapping

    return list(get_model_conversion_mapping(module))


def _fuses(transform: Any) -> bool:
    from transformers.core_model_loading import WeightConverter

    return isinstance(transform, WeightConverter)
