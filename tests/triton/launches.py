"""Launches that reach every program of the kernels, with the shapes of real models."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from tests.triton.fake_device import SHARED

from anychip.cache.storage import stored_as
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.ragged import Ragged
from anychip.plugin.contract import KVSpec, Plane
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.plan import CROWD, key_slots
from anychip.triton.attention.rotary import Heads
from anychip.triton.chip import Chip
from anychip.triton.packing import prepare_codes
from anychip.triton.peers import PeerMemory, add_peers
from anychip.triton.provider import TritonKernels
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme
from anychip.weights.weight import Weight
from anychip_cuda.chips import caches_of, describe, formats_of
from anychip_rocm.chips import CHIPS

CODED = (
    Scheme("int4", 4, 32, True, "none"),
    Scheme("int4", 4, 128, False, "none"),
    *(Scheme("int8", 8, 0, False, activation) for activation in ("token", "group", "none")),
    Scheme("fp8", 8, 0, False, "token"),
)
SOME = ((100, 1), (50, 1), (70, 29), (0, 40))
"""Rows of a step, (cached, new)."""
HEAD_SIZES = (64, 80, 96, 128, 256)
MATRIX = re.compile(r"\b(v_s?w?mf?ma\w*|wgmma\.mma_async[\w.]*|tcgen05\.mma[\w.]*|mma\.sync[\w.]*)")


def chip(target: str, processors: int = 132) -> Chip:
    """As the platform of a target describes it."""
    if target in CHIPS:
        return CHIPS[target].chip(processors)
    return describe(capability(target), processors, SHARED[target])


def capability(target: str) -> tuple[int, int]:
    """The compute capability of one of NVIDIA's targets: (9, 0) for sm_90."""
    return divmod(int(target.removeprefix("sm_")), 10)


def ops_for(target: str, spec: OpSpec) -> Ops:
    return bind(TritonKernels(chip(target)).kernels(spec), spec)


def caches(target: str) -> tuple[str, ...]:
    """Types of cache that the platform of a target offers beside the model's own."""
    if target in CHIPS:
        return CHIPS[target].caches
    return caches_of(capability(target))


def attend(target: str, dim: int, cache_type: str = "auto") -> None:
    """Every program of the attention family."""
    spec = OpSpec("bfloat16", 1024, 32, 8, dim, 1000, 2048)
    ops, rows = ops_for(target, spec), ((100, 1),) * CROWD + SOME
    table, blocks = shuffled_table(torch.Generator(), [sum(row) for row in rows], 16)
    inputs, few = batch_inputs(rows, table), batch_inputs(SOME, table[CROWD:])
    layer = stored_as(KVSpec("full", tuple(Plane(name, (8, dim), spec.dtype) for name in "kv")), cache_type)
    cache, plan = ops.new_cache(layer, blocks, 16, "cpu"), ops.plan_attention(inputs, layer, 16)
    tokens = sum(new for _, new in rows)
    q, k = (torch.zeros(tokens, heads, dim, dtype=torch.bfloat16) for heads in (32, 8))
    table = torch.zeros(256, dim)
    q = ops.qk_norm_rope_kv_write(q, k, k, q[0, 0], k[0, 0], 1e-5, inputs.positions, table, cache, plan)
    ops.kv_write(k, k, cache, plan)
    heads = Heads(chip(target))
    heads.prepare(q, k, k, q[0, 0], k[0, 0], 1e-5, inputs.positions, table, cache, plan, torch.empty_like(k))
    slots = key_slots(inputs.query_start, inputs.block_table, tokens, 16, chip(target))
    heads.read(cache, slots, 256, q.dtype)
    ops.paged_attention(q, cache, plan, 0.1, 30.0, q[0, :, 0].contiguous())
    ops.paged_attention(q, cache, plan, 0.1)
    for processors in (1, 132):  # large and small tiles
        attention = Attention(replace(chip(target, processors), overlap=False), 32, torch.bfloat16)
        attention.paged_attention(q[CROWD:], cache, attention.plan_attention(few, layer, 16), 0.1)
        large = ops.new_cache(layer, blocks, 64, "cpu")  # whose pages chips may copy by themselves
        attention.paged_attention(q[CROWD:], large, attention.plan_attention(few, layer, 64), 0.1)
    ops.paged_attention(q, large, ops.plan_attention(inputs, layer, 64), 0.1, 30.0, q[0, :, 0].contiguous())


def attend_float32(target: str, dim: int) -> None:
    """Attention in float32, whose tiles are others."""
    spec = OpSpec("float32", 1024, 32, 8, dim, 1000, 2048)
    ops, rows = ops_for(target, spec), ((100, 1),) * CROWD + SOME
    table, blocks = shuffled_table(torch.Generator(), [sum(row) for row in rows], 16)
    inputs = batch_inputs(rows, table)
    layer = KVSpec("full", tuple(Plane(name, (8, dim), spec.dtype) for name in "kv"))
    cache, plan = ops.new_cache(layer, blocks, 16, "cpu"), ops.plan_attention(inputs, layer, 16)
    q = torch.zeros(sum(new for _, new in rows), 32, dim)
    ops.paged_attention(q, cache, plan, 0.1)


def multiply(target: str) -> None:
    """Every program of rows."""
    ops = ops_for(target, OpSpec("bfloat16", 1024, 16, 8, 128, 1000, 2048))
    gate_up, down = weight(4096, 1024), weight(1024, 2048)
    for tokens in (1, 8, 64):
        x = torch.zeros(tokens, 1024, dtype=torch.bfloat16)
        ops.norm_linear(x, x, x[0], 1e-5, weight(6144, 1024), None)
        ops.norm_linear(x, None, x[0], 1e-5, weight(3000, 1024), x[0].repeat(3)[:3000])
        ops.gated_mlp(x, gate_up, down, "silu")
        ops.gated_mlp(x[:, :128], weight(26000, 128), weight(64, 13000), "silu")  # rows that fill a chip
    ops.gelu_mul(x, "tanh")
    ops.silu_mul(x)
    for residual in (None, x):
        ops.layer_norm(x, residual, x[0], x[0], 1e-5)
    for lengths, dim in (((40, 3), 64), ((2000, 700), 64), ((5, 2), 32), ((2000, 700), 128)):
        heads = torch.zeros(sum(lengths), 16, dim, dtype=torch.bfloat16)
        ops.ragged_attention(heads, heads, heads, Ragged.of(lengths), 0.1)
    ops.embedding(torch.zeros(5, dtype=torch.int32), x)


def mix(target: str) -> None:
    """Every program of the experts: for one token, for some, for many."""
    spec = OpSpec("bfloat16", 2048, 32, 4, 128, 1000, num_experts=128, experts_per_token=8, expert_size=768)
    ops = ops_for(target, spec)
    gate_up, down = weight(128 * 2 * 768, 2048).stacked(128), weight(128 * 2048, 768).stacked(128)
    for tokens in (1, 100, 300, 500, 1000, 4096):
        x = torch.zeros(tokens, 2048, dtype=torch.bfloat16)
        shares, chosen = ops.route(torch.zeros(tokens, 128, dtype=torch.bfloat16), 8, True)
        ops.experts(x, gate_up, down, shares, chosen, "silu")


def decode_weights(target: str) -> None:
    """Every program of quantized weights, in the formats that the target has."""
    formats = CHIPS[target].formats if target in CHIPS else formats_of(capability(target))
    for scheme in (each for each in CODED if each.format in formats):
        decode_with(chip(target), scheme)


def decode_with(chip: Chip, scheme: Scheme) -> None:
    """One token, some, and many; some with a bias."""
    spec = OpSpec("bfloat16", 1024, 16, 8, 128, 1000, 2048, weight_formats=(scheme.format,))
    ops = bind(TritonKernels(chip).kernels(spec), spec)
    coded = prepare_codes(quantize(weight(256, 1024), scheme), chip.float8, chip.fragments)
    library = chip.library_codes and scheme.format == "fp8"  # torch has no such product on the host
    for tokens in (1, 64) if library else (1, 64, 128, 256):
        ops.linear(torch.zeros(tokens, 1024, dtype=torch.bfloat16), coded, None)
    if chip.fragments and scheme.bits == 4:
        uneven = prepare_codes(quantize(weight(250, 1024), scheme), fragments=True)
        for tokens in (1, 64, 256):
            ops.linear(torch.zeros(tokens, 1024, dtype=torch.bfloat16), uneven, None)
    if scheme.bits == 8:
        x = torch.zeros(64, 1024, dtype=torch.bfloat16)
        ops.linear(x, coded, x[0, :256])
        for residual in (None, x):
            ops.norm_linear(x, residual, x[0], 1e-5, coded, None)
        gate_up, down = (
            prepare_codes(quantize(weight(*shape), scheme), chip.float8, chip.fragments)
            for shape in ((2048, 1024),) * 2
        )
        ops.gated_mlp(x, gate_up, down, "silu")


def choose(target: str) -> None:
    """All ways to choose a token."""
    ops = ops_for(target, OpSpec("bfloat16", 1024, 16, 8, 128, 1000, 2048))
    logits = torch.zeros(2, 151936)
    ops.greedy(logits)
    rows, newest = torch.zeros(2, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    ops.take_highest(logits, rows, newest)
    parameters = torch.ones(2), rows, torch.ones(2), torch.ones(2)
    for candidates in (0, 50):
        for dtype in (torch.float32, torch.bfloat16):
            ops.take_drawn(logits.to(dtype), rows.long(), rows, *parameters, candidates, rows, newest)
        ops.sample(logits, *parameters, torch.ones(2, 2), candidates)


def edit(target: str) -> None:
    """Everything that is done to logits, and log-probabilities."""
    ops = ops_for(target, OpSpec("bfloat16", 1024, 16, 8, 128, 1000, 2048))
    for dtype in (torch.bfloat16, torch.float32):
        logits = torch.zeros(3, 151936, dtype=dtype)
        index, numbers = torch.tensor([0, 2]), torch.ones(2)
        history = index, index, torch.zeros(3, 151936, dtype=torch.int32), torch.zeros(3, 151936, dtype=torch.bool)
        ops.apply_penalties(logits, *history, numbers, numbers, numbers, False)
        ops.gather_logprobs(logits, torch.zeros(3, dtype=torch.int64), 5)
    ops.count_tokens(torch.zeros(3, dtype=torch.int64), *history)
    ops.add_bias(logits, index, index, numbers)
    ops.mask_tokens(logits, index, torch.zeros(2, 4748, dtype=torch.int32))


def add(target: str) -> None:
    """The sum over ranks."""
    addresses, rounds = torch.zeros(2, dtype=torch.int64), torch.zeros(64, dtype=torch.int32)
    for dtype in (torch.bfloat16, torch.float32):
        add_peers(
            torch.zeros(5000, dtype=dtype),
            PeerMemory(1, addresses, addresses, rounds, ()),
            chip(target),
        )


def weight(rows: int, columns: int) -> Weight:
    return Weight(torch.zeros(rows, columns, dtype=torch.bfloat16), (rows, columns))


def matrix_instructions(text: str) -> list[str]:
    """Those in a kernel's assembly."""
    return sorted({re.sub(r"\.sync\.aligned", "", found) for found in MATRIX.findall(text)})
