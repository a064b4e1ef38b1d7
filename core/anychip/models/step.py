"""What a forward pass needs besides its tokens; an argument of every layer, never ambient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anychip.ops.ragged import Ragged


@dataclass(frozen=True, slots=True)
class StepContext:
    """One step's positions, and each layer's plan and cache. Layers of one KV group share their plan object."""

    positions: torch.Tensor
    """[T] int32."""
    plans: tuple[Any, ...]
    """By layer index: what `plan_attention` returned for the layer's group."""
    caches: tuple[Any, ...]
    """By layer index: what `new_cache` returned; None for a layer that caches nothing."""
    ragged: Ragged | None = None
    """Which tokens belong to one row, for layers without a cache."""
    wanted: torch.Tensor | None = None
    """[L] int32 ascending: tokens whose hidden states are needed; the others need not be computed. None: all."""
    text_ids: torch.Tensor | None = None
    """[T] int32, 1 for a token of the second of two texts, else 0; for a model that `tells_texts_apart`."""
