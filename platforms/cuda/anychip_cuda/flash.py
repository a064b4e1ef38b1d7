"""Attention of prompts by FlashAttention 3 (Shah et al., 2024), from either of two packages that others build.

Their Python functions are made for training; called here is the operator of torch that those functions call.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from anychip.ops.op import OpSpec
from anychip_cuda.libraries import Keys, Library, Prompts, refusals

ARGUMENTS = {
    *("q", "k", "v", "out", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
    *("softmax_scale", "is_causal", "num_splits", "pack_gqa"),
}
"""Arguments that the operator has to have; an older one lacks some."""
ALIGNMENT = 16
"""Bytes at whose multiples rows of queries, keys and values have to begin, as the chip copies tiles of them."""
HEAD_DIMS = (64, 96, 128, 192, 256)
MAX_KEYS_PER_TOKEN = 16
"""Keys for each new token of a row up to which reading them out of the cache costs less than it gains."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package with FlashAttention 3."""

    distribution: str
    """Its name for pip."""
    extension: str
    """The compiled module that registers the operators."""
    namespace: str
    """Where in `torch.ops` the operator `fwd` is."""
    config: str
    """The module that says how it was built."""


PACKAGES = (
    Package("fa3-fwd", "fa3_fwd._C", "fa3_fwd", "fa3_fwd_config"),
    Package("flash-attn-3", "flash_attn_3._C", "flash_attn_3", "flash_attn_config"),
)
"""A build of the forward pass alone, and the authors' own package; the first one that is installed is used."""


@dataclass(frozen=True, slots=True)
class Flash(Library):
    """One package's operator: one launch a step, and no length is rounded up.

    Prompts that are alike are passed as a batch [P, t / P, N, D], others as one sequence with cumulative lengths.
    """

    package: Package
    version: str
    dtypes: tuple[str, ...]
    """Types that it was built for."""
    largest: int
    """Largest head size that it was built for."""

    takes_computed = True
    capturable = True
    max_keys_per_token = MAX_KEYS_PER_TOKEN

    @property
    def name(self) -> str:
        """See `Library`."""
        return f"FlashAttention 3 ({self.package.distribution} {self.version})"

    def refuses(self, spec: OpSpec) -> list[str]:
        """See `Library`."""
        return refusals(spec, self.dtypes, self.largest)

    def attend(
        self, q: torch.Tensor, keys: Keys, prompts: Prompts, scale: float, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Library`."""
        count = prompts.key_start[-1]
        k, v = keys.computed if keys.computed is not None else keys.read(0, count, count)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        if q.is_meta:
            return out
        q, k, v = _aligned(q), _aligned(k), _aligned(v)
        forward = _operator(self.package.namespace)
        if prompts.alike:
            q, k, v, there = (x.unflatten(0, (prompts.count, -1)) for x in (q, k, v, out))
            forward(q, k, v, out=there, softmax_scale=scale, is_causal=True, num_splits=1)
            return out
        forward(
            *(q, k, v), out=out, cu_seqlens_q=prompts.device_query_start, cu_seqlens_k=prompts.device_key_start,
            max_seqlen_q=max(prompts.lengths), max_seqlen_k=max(prompts.key_lengths), softmax_scale=scale,
            is_causal=True, num_splits=1, pack_gqa=False,
        )  # fmt: skip
        return out


def load(package: Package, level: tuple[int, int]) -> Flash | str:
    """What a package offers a GPU of compute capability `level`.

    If it cannot be used: why, as the rest of a sentence that begins with the package's name.
    """
    try:
        version = metadata.version(package.distribution)
    except metadata.PackageNotFoundError:
        return "is not installed"
    try:
        importlib.import_module(package.extension)
        disabled = _disabled(importlib.import_module(package.config))
        known = {argument.name for argument in _operator(package.namespace)._schema.arguments}
    except (ImportError, OSError, RuntimeError, AttributeError, LookupError, TypeError) as error:
        return f"{version} cannot be used with torch {torch.__version__}: {error}"
    if not known >= ARGUMENTS:
        return f"{version} is too old: it does not know {', '.join(sorted(ARGUMENTS - known))}"
    if level[0] not in (8, 9) or (level[0] == 8 and "SM8x" in disabled):
        return f"{version} is not made for compute capability {'.'.join(map(str, level))}"
    dtypes = ("bfloat16",) if "FP16" in disabled else ("bfloat16", "float16")
    sizes = [size for size in HEAD_DIMS if f"HDIM{size}" not in disabled]
    return Flash(package, version, dtypes, max(sizes, default=0))


def _operator(namespace: str) -> Any:
    return getattr(torch.ops, namespace).fwd.default


def _disabled(config: Any) -> set[str]:
    """Features that were left out of a build, such as FP16."""
    flags: dict[str, bool] = config.CONFIG["build_flags"]
    return {name.rpartition("DISABLE_")[2] for name, disabled in flags.items() if disabled}


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it if its rows do not begin at multiples of ALIGNMENT."""
    odd = any(stride * x.itemsize % ALIGNMENT for stride in x.stride()[:-1]) or x.data_ptr() % ALIGNMENT
    return x.contiguous().clone() if odd else x
