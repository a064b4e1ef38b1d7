"""What `triton_kernels.py` runs: real shapes, a variant a case, each with its own check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from triton_device import chip

from anychip.ops.attention import AttentionInputs
from anychip.plugin.contract import KVSpec, Plane
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.cache import PagedCache, new_cache
from anychip.triton.linear.shapes import ThinShape
from anychip.triton.programs.thin import multiply_thin
from anychip.triton.programs.vector import multiply_vector
from anychip.triton.tuning import Tile, Tuning, WeightTile
from anychip_cuda.chips import H200

BLOCK = 64
COLD = 256 * 2**20
"""Bytes that rotating buffers take together, several times the L2."""
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Timed:
    """A case: `prepare` builds inputs, checks one result, and returns (call number i, error)."""

    name: str
    amount: float
    unit: str
    prepare: Callable[[], tuple[Callable[[int], object], float]]


def cases() -> list[Timed]:
    """Every case."""
    return [*decode_cases(), *query_cases(), *vector_cases(), *thin_cases()]


def attention_case(
    name: str, rows: list[tuple[int, int]], heads: int, kv_heads: int, dim: int, tuning: Tuning, overlap: bool = False
) -> Timed:
    """Rows of (cached, new) tokens."""
    single = all(new == 1 for _, new in rows)
    tokens = sum(new for _, new in rows)
    read = 2 * sum(cached + new for cached, new in rows) * kv_heads * dim * 2
    work = sum(4 * new * (cached + (new + 1) / 2) * heads * dim for cached, new in rows)

    def prepare() -> tuple[Callable[[int], object], float]:
        attention = Attention(replace(chip(overlap), tuning=tuning), heads, BF16)
        spec = KVSpec("full", tuple(Plane(plane, (kv_heads, dim), "bfloat16") for plane in "kv"))
        inputs, blocks = step_inputs(rows)
        caches = [random_cache(spec, blocks) for _ in range(max(1, min(24, COLD // read)))]
        q = torch.randn(tokens, heads, dim, dtype=BF16, device="cuda")
        plan = attention.plan_attention(inputs, spec, BLOCK)
        out = attention.paged_attention(q, caches[0], plan, dim**-0.5)
        error = attention_error(out, q, caches[0], inputs, rows, dim**-0.5)
        return lambda i: attention.paged_attention(q, caches[i % len(caches)], plan, dim**-0.5), error

    return Timed(name, read if single else work, "TB/s" if single else "TFLOP/s", prepare)


def step_inputs(rows: list[tuple[int, int]]) -> tuple[AttentionInputs, int]:
    """Inputs of a step with shuffled blocks, and the number of blocks."""
    lengths = [cached + new for cached, new in rows]
    counts = [-(-length // BLOCK) for length in lengths]
    order = np.random.default_rng(1).permutation(sum(counts)).astype(np.int32) + 1
    table = np.zeros((len(rows), max(counts)), np.int32)
    for row, (count, end) in enumerate(zip(counts, np.cumsum(counts), strict=True)):
        table[row, :count] = order[end - count : end]
    positions = np.concatenate([np.arange(cached, cached + new, dtype=np.int32) for cached, new in rows])
    start = np.cumsum([0, *(new for _, new in rows)], dtype=np.int32)
    single = next((row for row, (_, new) in enumerate(rows) if new != 1), len(rows))
    return AttentionInputs.from_host(positions, start, np.array(lengths, np.int32), table, single, "cuda"), sum(
        counts
    ) + 1


def random_cache(spec: KVSpec, blocks: int) -> PagedCache:
    """A cache full of normal numbers."""
    cache = new_cache(spec, blocks, BLOCK, "cuda")
    cache.k.normal_()
    cache.v.normal_()
    return cache


def attention_error(
    out: torch.Tensor, q: torch.Tensor, cache: PagedCache, inputs: AttentionInputs, rows: list[tuple[int, int]],
    scale: float,
) -> float:  # fmt: skip
    """Normalized error of the last tokens of the first and the last row, in float64."""
    start, errors = inputs.host_query_start, []
    for row in {0, len(rows) - 1}:
        length = sum(rows[row])
        taken = min(16, rows[row][1])
        blocks = inputs.block_table[row, : -(-length // BLOCK)].long()
        k, v = (plane[blocks].transpose(1, 2).flatten(0, 1)[:length].double() for plane in (cache.k, cache.v))
        queries = q[int(start[row + 1]) - taken : int(start[row + 1])].double()
        group = q.shape[1] // k.shape[1]
        scores = torch.einsum("tnd,snd->nts", queries, k.repeat_interleave(group, 1)) * scale
        hidden = torch.ones(taken, length, dtype=torch.bool, device="cuda").triu(length - taken + 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        right = torch.einsum("nts,snd->tnd", weights, v.repeat_interleave(group, 1))
        given = out[int(start[row + 1]) - taken : int(start[row + 1])].double()
        errors.append(float((given - right).norm() / right.norm()))
    return round(max(errors), 5)


def decode_cases() -> Iterator[Timed]:
    """Rows with one token: an 8B and a 0.6B model's heads; tiles on some of them."""
    for rows, context in ((1, 1000), (1, 32000), (8, 1000), (32, 1000), (32, 8000), (128, 1000), (256, 1000)):
        for overlap in (False, True):
            label = f"decode 32/8x128 {rows}x{context}{' overlap' if overlap else ''}"
            yield attention_case(label, [(context, 1)] * rows, 32, 8, 128, H200, overlap)
    yield attention_case("decode 32/8x128 ragged", [(37 * i % 4000 + 1, 1) for i in range(64)], 32, 8, 128, H200)
    yield attention_case("decode 32/8x128 long+63", [(64000, 1)] + [(500, 1)] * 63, 32, 8, 128, H200)
    for rows in (1, 32, 128):
        yield attention_case(f"decode 16/8x128 {rows}x1000 overlap", [(1000, 1)] * rows, 16, 8, 128, H200, True)
    for dim in (64, 80, 96, 256):
        yield attention_case(f"decode 32/8x{dim} 32x2000", [(2000, 1)] * 32, 32, 8, dim, H200)
    for keys, warps, stages in ((64, 4, 6), (64, 2, 4), (64, 2, 6), (128, 4, 4), (32, 2, 6), (128, 8, 4)):
        for waves in (4, 8):
            tiles = replace(H200, context=Tile(16, keys, warps, stages), waves=waves)
            for rows, context in ((1, 1000), (8, 1000), (32, 1000), (1, 32000), (128, 1000)):
                label = f"decode tile {keys} keys {warps} warps {stages} stages {waves} waves {rows}x{context}"
                yield attention_case(label, [(context, 1)] * rows, 32, 8, 128, tiles, True)
    for waves in (2, 4, 6, 12, 16):
        for rows, context in ((1, 1000), (1, 32000), (8, 1000), (32, 1000), (32, 8000)):
            label = f"decode waves {waves} {rows}x{context}"
            yield attention_case(label, [(context, 1)] * rows, 32, 8, 128, replace(H200, waves=waves), True)


def query_cases() -> Iterator[Timed]:
    """Rows with several tokens, and what torch's own attention reaches on the same."""
    for cached, new in ((0, 8192), (0, 1024), (7000, 1024), (7000, 64), (7000, 4)):
        yield attention_case(f"extend 32/8x128 {new} on {cached}", [(cached, new)], 32, 8, 128, H200)
    yield attention_case("extend 32/8x128 64 rows 128 on 512", [(512, 128)] * 64, 32, 8, 128, H200)
    for dim in (64, 96, 256):
        yield attention_case(f"extend 32/8x{dim} 4096 on 0", [(0, 4096)], 32, 8, dim, H200)
    for rows, keys, warps, stages in ((128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3)):
        for cached, new in ((0, 8192), (0, 1024)):
            label = f"extend tile {rows}x{keys} {warps} warps {stages} stages {new} on {cached}"
            tile = Tile(rows, keys, warps, stages)
            tiles = replace(H200, grouped=None, copied_small=tile, copied=tile)
            yield attention_case(label, [(cached, new)], 32, 8, 128, tiles)
    yield Timed("extend torch sdpa 8192", 4 * 8192 * 4096.5 * 32 * 128, "TFLOP/s", torch_prefill)


def torch_prefill() -> tuple[Callable[[int], object], float]:
    """Causal attention of torch's choice."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(1, heads, 8192, 128, dtype=BF16, device="cuda") for heads in (32, 8, 8))

    def run(index: int) -> object:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return run, 0.0


VECTORS = (
    (1024, 4096), (2048, 1024), (1024, 6144), (3072, 1024), (1024, 151936), (4096, 6144), (4096, 4096), (4096, 28672),
    (14336, 4096), (4096, 128256),
)  # fmt: skip


def weights(inputs: int, rows: int) -> list[torch.Tensor]:
    """Matrices [rows, inputs] that rotate past the L2."""
    count = max(2, min(24, COLD // (2 * inputs * rows)))
    return [torch.randn(rows, inputs, dtype=BF16, device="cuda") * inputs**-0.5 for _ in range(count)]


def error_of(out: torch.Tensor, right: torch.Tensor) -> float:
    """Normalized error."""
    return round(float((out.double() - right.double()).norm() / right.double().norm()), 5)


def vector_cases() -> Iterator[Timed]:
    """One token: torch, and variants."""
    for inputs, rows in VECTORS:
        yield torch_linear(inputs, rows, 1)
        for block, depth, warps in ((2, 1024, 4), (4, 512, 2), (2, 512, 2), (1, 1024, 2)):
            yield vector_case(inputs, rows, block, min(depth, inputs), warps, True)
    for activation, norm in (("silu", False), ("", True), ("silu", True)):
        for inputs, rows in ((1024, 3072), (4096, 14336), (4096, 6144)):
            for block, depth, warps in ((2, 1024, 4), (4, 512, 2), (4, 1024, 4)):
                yield vector_case(inputs, rows, block, depth, warps, True, activation, norm)


def vector_case(
    inputs: int, rows: int, block: int, depth: int, warps: int, overlap: bool, activation: str = "", norm: bool = False
) -> Timed:
    """A variant of multiply_vector."""
    height = rows * (2 if activation else 1)

    def prepare() -> tuple[Callable[[int], object], float]:
        matrices, x = weights(inputs, height), torch.randn(1, inputs, dtype=BF16, device="cuda")
        residual, norm_weight = torch.randn_like(x), torch.randn_like(x[0])

        def run(index: int) -> torch.Tensor:
            out, total = x.new_empty(1, rows), torch.empty_like(x)
            multiply_vector[(-(-rows // block),)](
                x, residual, norm_weight, matrices[index % len(matrices)], None, out, total, 1e-5, inputs, N=rows,
                K=inputs, NORM=norm, ADD=norm, BIAS=False, ACTIVATION=activation, BLOCK_N=block, BLOCK_K=depth,
                num_warps=warps, **chip(overlap).order,
            )  # fmt: skip
            return out

        z = x.double()
        if norm:
            z = z + residual.double()
            z = z * torch.rsqrt(z.square().mean() + 1e-5) * norm_weight.double()
        right = z @ matrices[0].double().T
        if activation:
            right = functional.silu(right[:, :rows]) * right[:, rows:]
        return run, error_of(run(0), right)

    label = f"{activation}{' norm' if norm else ''}{' overlap' if overlap else ''}"
    name = f"vector {inputs}->{height} block {block} depth {depth} warps {warps}{label and ' ' + label}"
    return Timed(name, 2 * inputs * height, "TB/s", prepare)


def torch_linear(inputs: int, rows: int, tokens: int) -> Timed:
    """What torch's linear takes."""

    def prepare() -> tuple[Callable[[int], object], float]:
        matrices, x = weights(inputs, rows), torch.randn(tokens, inputs, dtype=BF16, device="cuda")
        return lambda i: functional.linear(x, matrices[i % len(matrices)]), 0.0

    kind = "vector" if tokens == 1 else "thin"
    return Timed(f"{kind} {inputs}->{rows} torch {tokens}", 2 * inputs * rows, "TB/s", prepare)


def thin_cases() -> Iterator[Timed]:
    """Few tokens: torch, and variants."""
    for tokens in (8, 64):
        for inputs, rows in ((1024, 4096), (2048, 1024), (4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)):
            yield torch_linear(inputs, rows, tokens)
            for depth, split, stages in ((128, 1, 4), (128, 2, 4), (128, 4, 4), (128, 2, 5), (64, 2, 6), (64, 4, 8)):
                tile = WeightTile(64, depth, 4, stages)
                shape = ThinShape(64, max(16, tokens), depth, split, tile.launch())
                yield thin_case(inputs, rows, tokens, shape)


def thin_case(inputs: int, rows: int, tokens: int, shape: ThinShape) -> Timed:
    """A variant of multiply_thin."""

    def prepare() -> tuple[Callable[[int], object], float]:
        matrices, x = weights(inputs, rows), torch.randn(tokens, inputs, dtype=BF16, device="cuda")
        counters = torch.zeros(4096, dtype=torch.int32, device="cuda")
        partial = torch.empty(shape.split * shape.tiles(rows) * shape.rows * shape.tokens, device="cuda")

        def run(index: int) -> torch.Tensor:
            out: Any = x.new_empty(tokens, rows)
            multiply_thin[(shape.tiles(rows), shape.split)](
                x, matrices[index % len(matrices)], None, None, None, out, partial, counters, tokens, inputs, inputs,
                N=rows, K=inputs, BIAS=False, ACTIVATION="", AHEAD=0, PARTS=1, TILED=False, **shape.launch,
                **chip(True).order,
            )  # fmt: skip
            return out

        for _ in range(3):
            run(0)
        return run, error_of(run(0), x.double() @ matrices[0].double().T)

    label = f"{shape.rows}x{shape.inputs} split {shape.split} stages {shape.options['num_stages']}"
    return Timed(f"thin {inputs}->{rows} tokens {tokens} {label}", 2 * inputs * rows, "TB/s", prepare)
