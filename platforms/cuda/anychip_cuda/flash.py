"""FlashAttention 3 (Shah et al., 2024): the attention of prompts of packages that others build.

Their Python functions are made for training; what they call is an operator of torch, and so is what is called here.
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
"""What the operator has to know."""
ALIGNMENT = 16
"""Bytes that lines of queries, keys and values are multiples of where the chip copies tiles of them."""
HEAD_DIMS = (64, 96, 128, 192, 256)
MOST_KEYS = 16
"""Keys for each token of a row up to which reading them out of the cache costs less than it gains."""


@dataclass(frozen=True, slots=True)
class Package:
    """One that has the operator `fwd`, how it was built in a module of its own."""

    distribution: str
    extension: str
    namespace: str
    config: str


PACKAGES = (
    Package("fa3-fwd", "fa3_fwd._C", "fa3_fwd", "fa3_fwd_config"),
    Package("flash-attn-3", "flash_attn_3._C", "flash_attn_3", "flash_attn_config"),
)
"""One with the forward pass alone, and the authors' own."""


@dataclass(frozen=True, slots=True)
class Flash(Library):
    """Prompts that are alike as a matrix, others by where each begins: one launch, nothing rounded."""

    package: Package
    version: str
    dtypes: tuple[str, ...]
    largest: int

    keeps = True
    captures = True
    most_keys = MOST_KEYS

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
        k, v = keys.beside if keys.beside is not None else keys.read(0, count, count)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        if q.is_meta:
            return out
        q, k, v = _aligned(q), _aligned(k), _aligned(v)
        forward = _operator(self.package.namespace)
        if prompts.even:
            q, k, v, there = (x.unflatten(0, (prompts.count, -1)) for x in (q, k, v, out))
            forward(q, k, v, out=there, softmax_scale=scale, is_causal=True, num_splits=1)
            return out
        forward(
            *(q, k, v), out=out, cu_seqlens_q=prompts.on_device, cu_seqlens_k=prompts.keys_on_device,
            max_seqlen_q=max(prompts.lengths), max_seqlen_k=max(prompts.key_lengths), softmax_scale=scale,
            is_causal=True, num_splits=1, pack_gqa=False,
        )  # fmt: skip
        return out


def load(package: Package, level: tuple[int, int]) -> Flash | str:
    """What a package offers a GPU of some compute capability, or why it cannot be used, as the end of a sentence."""
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
    """What a build leaves out, such as FP16."""
    flags: dict[str, bool] = config.CONFIG["build_flags"]
    return {name.rpartition("DISABLE_")[2] for name, disabled in flags.items() if disabled}


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it whose lines begin where tiles can be copied from."""
    odd = any(stride * x.itemsize % ALIGNMENT for stride in x.stride()[:-1]) or x.data_ptr() % ALIGNMENT
    return x.contiguous().clone() if odd else x
