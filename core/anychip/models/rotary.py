"""Rotary tables: the base frequencies, and how context extensions change them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from anychip.errors import UserError


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """A model's rotary embedding as its config gives it."""

    theta: float
    rotary: int
    """Elements of a head that are rotated, the first ones."""
    kind: str
    scaling: Mapping[str, Any]
    max_position: int
    """`max_position_embeddings` of the config."""

    @property
    def original_position(self) -> int:
        """Positions that the model was pretrained for, before its context was extended."""
        return int(self.scaling.get("original_max_position_embeddings") or self.max_position)

    @property
    def factor(self) -> float:
        """By how much its context was extended."""
        return float(self.scaling.get("factor") or self.max_position / self.original_position)

    @property
    def max_model_len(self) -> int:
        """Positions that can be served: up to there rotations do not depend on how long the request is."""
        if self.kind == "longrope":
            return self.original_position
        if self.kind == "yarn":
            return max(self.max_position, int(self.factor * self.original_position))
        return self.max_position


def read_rope(config: Mapping[str, Any], head_dim: int, max_position: int) -> RopeSettings:
    """Read `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before)."""
    scaling = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in FREQUENCIES:
        raise UserError(
            f"The model scales its rotary embedding by {kind!r}, which is not supported.",
            f"Supported are {', '.join(FREQUENCIES)}.",
        )
    if original := config.get("original_max_position_embeddings"):
        scaling["original_max_position_embeddings"] = original
    theta = scaling.get("rope_theta") or config.get("rope_theta") or 10000.0
    part = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    return RopeSettings(float(theta), int(head_dim * part), kind, scaling, max_position)


def rotary_table(rope: RopeSettings, length: int) -> torch.Tensor:
    """[length, rotary] float32: row p holds the cosines of position p, then the sines."""
    frequencies, attention_factor = FREQUENCIES[rope.kind](rope)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) * attention_factor


def _powers(rope: RopeSettings) -> torch.Tensor:
    """[rotary/2] theta^(2i/d): positions that each pair of elements takes to turn by one radian."""
    return rope.theta ** (torch.arange(0, rope.rotary, 2, dtype=torch.int64).float() / rope.rotary)


def _default(rope: RopeSettings) -> tuple[torch.Tensor, float]:
    """Su et al., 2021."""
    return 1.0 / _powers(rope), 1.0


def _linear(rope: RopeSettings) -> tuple[torch.Tensor, float]:
    """Position interpolation (Chen et al., 2023)."""
    return 1.0 / _powers(rope) / rope.factor, 1.0


def _llama3(rope: RopeSettings) -> tuple[torch.Tensor, float]:
    """Llama 3.1: long waves are interpolated, short ones kept, those between blended."""
    frequencies = 1.0 / _powers(rope)
    low, high = (float(rope.scaling[name]) for name in ("low_freq_factor", "high_freq_factor"))
    turns = rope.original_position * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - keep) * frequencies / rope.factor + keep * frequencies, 1.0


def _yarn(rope: RopeSettings) -> tuple[torch.Tensor, float]:
    """YaRN (Peng et al., 2023): blended by how often a pair turns within the original context."""
    low = _pair_of_turns(rope, float(rope.scaling.get("beta_fast") or 32))
    high = _pair_of_turns(rope, float(rope.scaling.get("beta_slow") or 1))
    if rope.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary - 1)
    pairs = torch.arange(rope.rotary // 2, dtype=torch.float32)
    interpolate = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    frequencies = 1.0 / _powers(rope)
    return frequencies / rope.factor * interpolate + frequencies * (1 - interpolate), _yarn_attention(rope)


def _pair_of_turns(rope: RopeSettings, turns: float) -> float:
    """Index of the pair that turns `turns` times within the original context."""
    return rope.rotary * math.log(rope.original_position / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def _yarn_attention(rope: RopeSettings) -> float:
    """YaRN's temperature, folded into the table: queries and keys are both scaled by it."""
    if (given := rope.scaling.get("attention_factor")) is not None:
        return float(given)

    def growth(weight: float) -> float:
        return 0.1 * weight * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    scale, scale_all = rope.scaling.get("mscale"), rope.scaling.get("mscale_all_dim")
    return growth(scale) / growth(scale_all) if scale and scale_all else growth(1.0)


def _longrope(rope: RopeSettings) -> tuple[torch.Tensor, float]:
    """LongRoPE (Ding et al., 2024) within the original context, where its short factors hold."""
    short = torch.tensor(rope.scaling["short_factor"], dtype=torch.float32)
    factor, attention = rope.factor, rope.scaling.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(rope.original_position)) if factor > 1 else 1.0
    return 1.0 / (short * _powers(rope)), float(attention)


FREQUENCIES: Mapping[str, Callable[[RopeSettings], tuple[torch.Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
"""By rope type: radians a position for each pair [rotary/2], and what cosines and sines are multiplied by.

`dynamic` changes frequencies only beyond the model's positions, which are not served.
"""
