"""A matrix times one vector: each weight is read once, products and sums are float32."""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import let_next_start, wait_for_previous


@triton.jit
def multiply_vector(
    x, residual, norm_weight, weight, bias, out, new_residual, eps, stride_w, N: tl.constexpr, K: tl.constexpr,
    OVERLAP: tl.constexpr, NORM: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = W z for z = x, or with NORM z = x (plus residual, with ADD), normalized.

    The factor 1 / rms is the same for all of z, so it is applied to y, and one reading of x serves both. With an
    ACTIVATION W has 2N rows, gates first, and y = activation(gates) * others.
    """
    let_next_start(OVERLAP)
    program = tl.program_id(0)
    rows, columns = program * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    lines = weight + tl.minimum(rows, N - 1).to(tl.int64)[:, None] * stride_w + columns[None, :]
    values = _weights(lines, columns, 0, K, BLOCK_K)  # before x is there: no program writes weights
    wait_for_previous(OVERLAP)
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    gates = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    squares = tl.zeros((BLOCK_K,), tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        inside = start + columns < K
        z = tl.load(x + start + columns, inside, other=0.0).to(tl.float32)
        if ADD:
            z += tl.load(residual + start + columns, inside, other=0.0).to(tl.float32)
            tl.store(new_residual + start + columns, z.to(out.dtype.element_ty), inside & (program == 0))
        if NORM:
            squares += z * z
            z *= tl.load(norm_weight + start + columns, inside, other=0.0).to(tl.float32)
        if start > 0:
            values = _weights(lines, columns, start, K, BLOCK_K)
        if ACTIVATION == "":
            total += values.to(tl.float32) * z[None, :]
        else:
            gates += values.to(tl.float32) * z[None, :]
            others = _weights(lines + tl.cast(N, tl.int64) * stride_w, columns, start, K, BLOCK_K)
            total += others.to(tl.float32) * z[None, :]
    scale = tl.rsqrt(tl.sum(squares, 0) / K + eps) if NORM else 1.0
    y = tl.sum(total, 1) * scale
    if BIAS:
        y += tl.load(bias + rows, rows < N, other=0.0).to(tl.float32)
    if ACTIVATION != "":
        y *= activate(tl.sum(gates, 1) * scale, ACTIVATION)
    tl.store(out + rows, y.to(out.dtype.element_ty), rows < N)


@triton.jit
def _weights(lines, columns, start, K: tl.constexpr, BLOCK_K: tl.constexpr):
    if K % BLOCK_K == 0:
        return tl.load(lines + start)
    else:
        return tl.load(lines + start, (start + columns < K)[None, :], other=0.0)
