"""What a forward pass needs besides its tokens; an argument of every layer, never ambient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class StepContext:
    """One step's positions, and each layer's plan and cache. Layers of one KV group share their plan object."""

    positions: torch.Tensor
    """[T] int32."""
    plans: tuple[Any, ...]
    """By layer index: what `plan_attention` returned for the layer's group."""
    caches: tuple[Any, ...]
    """By layer index: what `new_cache` returned."""
