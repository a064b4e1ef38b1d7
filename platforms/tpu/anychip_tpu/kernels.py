"""Every op's implementation: the references, which XLA fuses into one program with the step, but for a few."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anychip.ops.op import Kernel
from anychip.ops.registry import OPS
from anychip.ops.static_attention import STATIC_ATTENTION
from anychip_tpu.norm import layer_norm
from anychip_tpu.tokens import greedy, sample

_TRACED = {
    name: Kernel(op.reference)
    for name, op in OPS.items()
    if not op.composite and op.family != "attention" and name != "ragged_attention"
}
_OWN = {"layer_norm": Kernel(layer_norm), "greedy": Kernel(greedy), "sample": Kernel(sample)}
KERNELS: Mapping[str, Kernel] = MappingProxyType({**_TRACED, **STATIC_ATTENTION, **_OWN})
"""Kernels by op name. Composites are their parts: XLA finds what to fuse itself."""
