"""An op is four things: a torch reference, an input generator, a tolerance, and implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import torch

NumericClass = Literal["native", "int8-activation", "fp8-activation", "coded-cache", "exact"]
"""How an implementation computes; a closed list, so that a tolerance never belongs to a platform.

`native`: in the tensors' own dtype with float32 sums. `exact`: bit for bit.
"""

TOLERANCE: Mapping[tuple[NumericClass, str], float] = MappingProxyType(
    {
        ("native", "float32"): 2e-6,
        ("native", "bfloat16"): 1e-2,
        ("native", "float16"): 2e-3,
        ("int8-activation", "float32"): 2e-2,
        ("int8-activation", "bfloat16"): 2e-2,
        ("int8-activation", "float16"): 2e-2,
        ("fp8-activation", "float32"): 6e-2,
        ("fp8-activation", "bfloat16"): 6e-2,
        ("fp8-activation", "float16"): 6e-2,
        ("coded-cache", "float32"): 3e-2,
        ("coded-cache", "bfloat16"): 3e-2,
        ("coded-cache", "float16"): 3e-2,
        ("exact", "float32"): 0.0,
        ("exact", "bfloat16"): 0.0,
        ("exact", "float16"): 0.0,
    }
)
"""Largest normalized error, norm(out - reference) / norm(reference), the reference computed in float32."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What implementations may depend on: the shapes and types of one model on one rank."""

    dtype: str
    """What the model computes in: float32, bfloat16 or float16."""
    hidden_size: int
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key and value heads, by which the query heads are divisible."""
    head_dim: int
    vocab_size: int
    intermediate_size: int = 0
    """Inner size of the feed-forward network; 0: not known."""
    block_size: int = 16
    """Tokens of a block of the cache."""
    kv_dtype: str = ""
    """Type of the cache; empty means `dtype`."""
    windows: tuple[int, ...] = ()
    """Sliding windows in use."""
    softcap: bool = False
    """Whether attention caps its scores softly."""
    sinks: bool = False
    """Whether attention has sinks: a score of each head that no key belongs to."""
    weight_formats: tuple[str, ...] = ()
    """Quantized formats in use, e.g. ("int4",)."""
    encoder: bool = False
    """Tokens see their whole sequence, and nothing is cached."""
    num_experts: int = 0
    """Experts of a layer; 0: it is no mixture."""
    experts_per_token: int = 0
    """How many of them each token goes to."""
    expert_size: int = 0
    """Inner size of one expert."""


@dataclass(frozen=True, slots=True)
class Case:
    """One generated call: positional arguments, which of them the op writes to, and a label for reports."""

    label: str
    arguments: tuple[Any, ...]
    writes: tuple[int, ...] = ()


def _always(spec: OpSpec) -> bool:
    return True


def _never(spec: OpSpec) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Kernel:
    """An implementation a platform brings. `unsupported` returns every reason it cannot serve `spec`."""

    function: Callable[..., Any]
    """Takes what the op's reference takes."""
    unsupported: Callable[[OpSpec], list[str]] = _never
    """Every reason why it cannot serve a model; empty if it can."""
    numeric: NumericClass = "native"
    """How exactly it computes: by it, and the type, the kit chooses a tolerance."""


@dataclass(frozen=True, slots=True)
class Op:
    """Descriptor of one op. A composite's reference takes the bound ops first and calls its parts through them."""

    name: str
    reference: Callable[..., Any]
    generate: Callable[[torch.Generator, OpSpec], Iterator[Case]]
    """Yields cases in `spec.dtype` on the host: ragged, of size one, unaligned, and non-contiguous where legal."""
    composite: bool = False
    family: str = ""
    """Ops of one family share private data (a cache layout, a plan): all of them come from one provider, or none."""
    tolerance: Mapping[tuple[NumericClass, str], float] = field(default_factory=lambda: TOLERANCE)
    used: Callable[[OpSpec], bool] = _always
    """Whether a model of this shape calls the op; one that is not used is missed by nobody."""
    optional: bool = False
    """Whether its reference serves any device well, being some of torch's operators: running by it is no fallback."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How one op was resolved: `kernel`, `decomposition` (of a composite, or into torch's), `reference` or `unused`."""

    op: str
    kind: Literal["kernel", "decomposition", "reference", "unused"]
    reasons: tuple[str, ...] = ()
