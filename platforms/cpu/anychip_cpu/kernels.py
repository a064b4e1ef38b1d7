"""Every op's implementation on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anychip.ops.experts import route
from anychip.ops.linear import embedding
from anychip.ops.op import Kernel
from anychip.sample.choose import greedy
from anychip_cpu.attention import Attention
from anychip_cpu.cache import copy_blocks, new_cache
from anychip_cpu.experts import Experts
from anychip_cpu.linear import linear
from anychip_cpu.norm import add_rms_norm, gelu_mul, layer_norm, rms_norm, silu_mul
from anychip_cpu.plan import plan_attention
from anychip_cpu.ragged import ragged_attention
from anychip_cpu.rope import rope
from anychip_cpu.sampling import sample


def cpu_kernels() -> Mapping[str, Kernel]:
    """Kernels for one loaded model. `embedding`, `route` and `greedy` are the core's own: nothing here is faster."""
    attention = Attention()
    functions: dict[str, Callable[..., Any]] = {
        "rms_norm": rms_norm,
        "add_rms_norm": add_rms_norm,
        "layer_norm": layer_norm,
        "silu_mul": silu_mul,
        "gelu_mul": gelu_mul,
        "rope": rope,
        "linear": linear,
        "embedding": embedding,
        "route": route,
        "experts": Experts(linear, silu_mul, gelu_mul).experts,
        "new_cache": new_cache,
        "copy_blocks": copy_blocks,
        "plan_attention": plan_attention,
        "kv_write": attention.kv_write,
        "paged_attention": attention.paged_attention,
        "qk_norm_rope_kv_write": attention.qk_norm_rope_kv_write,
        "ragged_attention": ragged_attention,
        "greedy": greedy,
        "sample": sample,
    }
    return {name: Kernel(function) for name, function in functions.items()}
