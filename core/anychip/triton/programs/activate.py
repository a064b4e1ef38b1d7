"""Activation functions of feed-forward networks, in float32."""

import triton
import triton.language as tl


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """silu, gelu (by the error function), or gelu by its tanh approximation."""
    tl.static_assert((ACTIVATION == "silu" or ACTIVATION == "none") or ACTIVATION == "tanh")
    if ACTIVATION == "silu":
        return x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "none":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return x - x / (1.0 + tl.exp(2.0 * inner))
