"""The kit's op checks over kernels in Triton's interpreter, and what the kit's short rows do not reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from tests.triton.interpreted import PROCESSORS, InterpretedPlatform

from anychip.cache.storage import stored_as
from anychip.ops.attention import AttentionInputs
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.registry import OPS as ALL_OPS
from anychip.ops.shapes import normal
from anychip.plugin.contract import KVSpec, Plane
from anychip.testing.compare import normalized_error
from anychip.testing.op_checks import check_op
from anychip.triton.attention.rotary import Heads
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip.triton.sampling import Sampling
from anychip.triton.tuning import Tile, Tuning
from anychip.weights.weight import Weight
from anychip_cuda.chips import H200
from anychip_rocm.chips import CHIPS

OPS = (
    "rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "embedding", "linear", "paged_attention", "route", "greedy",
    "sample", "take_highest", "take_drawn", "layer_norm", "ragged_attention", "apply_penalties", "count_tokens",
    "add_bias", "mask_tokens",
)  # fmt: skip
SLOW_OPS = ("rope", "norm_linear", "gated_mlp", "kv_write", "qk_norm_rope_kv_write", "experts", "gather_logprobs")
"""In the interpreter, so on one shape: three query heads a cached head."""
RAGGED = ((700, 1), (3, 1), (64, 1), (0, 1), (511, 1), (5, 70), (300, 9), (0, 2))
"""Contexts of one and of several pieces, queries of one and of several tiles."""
TOLERANCE = {"float32": 3e-6, "float16": 2e-3}
COPIES = Chip(PROCESSORS, tuning=Tuning(copied_small=Tile(32, 16, 4, 2)), descriptors=True)
"""With tiles that fit small pages."""


class Subject:
    """What the kit asks of a subject."""

    def __init__(self, heads: tuple[int, ...], caches: tuple[str, ...] = ()) -> None:
        self.torch_platform = InterpretedPlatform(heads, caches)


@pytest.mark.parametrize("name", OPS)
def test_kit(name: str) -> None:
    assert check_op(name, Subject(())).startswith("kernel")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SLOW_OPS)
def test_kit_on_one_shape(name: str) -> None:
    assert "kernel" in check_op(name, Subject((9,), ("int8",)))  # type: ignore[arg-type]


class Step:
    """A step of RAGGED rows over a cache full of numbers, by these kernels and by the reference."""

    def __init__(
        self,
        dtype: str,
        window: int | None = None,
        softcap: float = 0.0,
        sinks: bool = False,
        cache: str = "",
        page: int = 16,
    ) -> None:
        generator = torch.Generator().manual_seed(3)
        self.spec = OpSpec(dtype, 96, 6, 2, 48, 100, windows=(window,) if window else (), kv_dtype=cache)
        planes = tuple(Plane(name, (2, 48), dtype) for name in "kv")
        self.layer = stored_as(KVSpec("sliding" if window else "full", planes, window), cache or "auto")
        table, self.blocks = shuffled_table(generator, [sum(row) for row in RAGGED], page)
        self.page = page
        self.inputs = batch_inputs(RAGGED, table)
        tokens = sum(new for _, new in RAGGED)
        self.q = normal(generator, tokens, 6, 48, dtype=dtype)
        self.k, self.v = (normal(generator, self.blocks * page, 2, 48, dtype=dtype) for _ in range(2))
        if cache == "fp8":
            self.k, self.v = representable(self.k), representable(self.v)
        self.softcap = softcap
        self.sinks = normal(generator, 6, dtype=dtype) if sinks else None

    def attend(self, ops: Ops, inputs: AttentionInputs, wide: bool = False) -> torch.Tensor:
        """Fill a cache and attend; `wide` in float32."""
        layer = self.layer
        if wide:
            whole = {plane for plane in layer.planes if plane.dtype == self.spec.dtype}
            planes = (replace(plane, dtype="float32") if plane in whole else plane for plane in layer.planes)
            layer = replace(layer, planes=tuple(planes))
        cache = ops.new_cache(layer, self.blocks, self.page, "cpu")
        everything = batch_inputs(((0, self.blocks * self.page),), np.arange(self.blocks, dtype=np.int32)[None])
        q, k, v = (x.float() if wide else x for x in (self.q, self.k, self.v))
        ops.kv_write(k, v, cache, ops.plan_attention(everything, layer, self.page))
        plan = ops.plan_attention(inputs, layer, self.page)
        return ops.paged_attention(q, cache, plan, 0.2, self.softcap, self.sinks)

    def error(self, inputs: AttentionInputs | None = None, chip: Chip | None = None) -> float:
        """Of the kernels, given `inputs`, against the reference, given the right ones."""
        kernels = TritonKernels(chip) if chip else InterpretedPlatform()
        ours = bind(kernels.kernels(self.spec), self.spec)
        return normalized_error(
            self.attend(ours, inputs or self.inputs), self.attend(bind({}, self.spec), self.inputs, wide=True)
        )


@pytest.mark.parametrize(("name", "cache"), [("gfx942", ""), ("gfx1100", "int8")])
def test_tiles_of_other_chips_give_the_same(name: str, cache: str) -> None:
    step = Step("float16", softcap=3.0, cache=cache)
    assert step.error(chip=CHIPS[name].chip(PROCESSORS)) < TOLERANCE["float16"]


@pytest.mark.parametrize(
    ("page", "options"), [(16, {}), (32, {"window": 100}), (32, {"softcap": 3.0, "sinks": True})], ids=str
)
def test_a_chip_may_copy_parts_of_pages_by_itself(page: int, options: dict[str, Any]) -> None:
    step = Step("float16", page=page, **options)
    nobodys = torch.ones(step.blocks * page, dtype=torch.bool)
    for row, length in zip(step.inputs.block_table, step.inputs.host_seq_lens.tolist(), strict=True):
        places = torch.arange(length)
        nobodys[row[places // page] * page + places % page] = False
    step.k[nobodys], step.v[nobodys] = float("nan"), float("nan")
    assert step.error(chip=COPIES) < TOLERANCE["float16"]
    moved, last = step.inputs.block_table.clone(), 309 // page - 1
    moved[6, last] = moved[6, last - 1]
    assert step.error(replace(step.inputs, block_table=moved), COPIES) > 10 * TOLERANCE["float16"]


def representable(values: torch.Tensor) -> torch.Tensor:
    """Near `values`, but float8_e4m3fn needs no rounding: the interpreter loses the carry of 124, next to 128."""
    codes = (values * 64).to(torch.float8_e4m3fn).to(values.dtype)
    codes[..., 0] = 448
    return codes.where(codes.abs() >= 2**-6, 0) / 64  # the smallest ones it takes for 0


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cache", ["int8", "fp8"])
@pytest.mark.parametrize("options", [{}, {"window": 100, "softcap": 3.0}], ids=["plain", "window and softcap"])
def test_codes_count_with_their_scales(dtype: str, cache: str, options: dict[str, Any]) -> None:
    step = Step(dtype, cache=cache, **options)
    assert step.error() < TOLERANCE[dtype]
    step.v[:, :, 1] *= 1.5
    right = step.attend(bind({}, step.spec), step.inputs, wide=True)
    step.v[:, :, 1] /= 1.5
    ours = bind(InterpretedPlatform().kernels(step.spec), step.spec)
    assert normalized_error(step.attend(ours, step.inputs), right) > 10 * TOLERANCE[dtype]


def test_values_of_very_different_sizes_keep_their_weights() -> None:
    """Their scales are a part of the weights' exponents; values of zero have a scale of zero, and count in the mass."""
    step = Step("float16", cache="fp8")
    sizes = torch.randint(-6, 7, (len(step.v), 1, 1), generator=torch.Generator().manual_seed(4))
    step.v = step.v * 2.0**sizes
    step.v[::3] = 0
    assert step.error() < TOLERANCE["float16"]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "options",
    [{}, {"window": 100}, {"softcap": 3.0, "sinks": True}, {"page": 64}],
    ids=["plain", "window", "softcap and sinks", "tiles within a block"],
)
def test_long_contexts_are_cut_and_joined(dtype: str, options: dict[str, Any]) -> None:
    assert Step(dtype, **options).error() < TOLERANCE[dtype]


@pytest.mark.parametrize("cache", ["", "int8", "fp8"])
def test_what_a_step_has_written_is_read_back(cache: str) -> None:
    """The tokens of RAGGED rows in a shuffled cache, and no others."""
    step, heads = Step("float32", cache=cache), Heads(Chip(PROCESSORS))
    ops = bind(InterpretedPlatform(caches=("int8", "fp8")).kernels(step.spec), step.spec)
    held = ops.new_cache(step.layer, step.blocks, 16, "cpu")
    plan = ops.plan_attention(step.inputs, step.layer, 16)
    tokens = len(step.q)
    ops.kv_write(step.k[:tokens], step.v[:tokens], held, plan)
    k, v = heads.read(held, plan.slots, tokens + 9, torch.float32)
    assert torch.equal(k[tokens:], torch.zeros_like(k[tokens:]))
    assert torch.equal(v[tokens:], torch.zeros_like(v[tokens:]))
    limit = {"": 0.0, "int8": 1e-2, "fp8": 4e-2}[cache]
    for read, written in ((k[:tokens], step.k[:tokens]), (v[:tokens], step.v[:tokens])):
        assert normalized_error(read, written) <= limit
        assert normalized_error(read.roll(1, 0), written) > 0.1


def test_the_check_sees_a_wrong_length_and_a_wrong_block() -> None:
    step = Step("float32")
    shorter, moved = step.inputs.seq_lens.clone(), step.inputs.block_table.clone()
    shorter[0] -= 1
    moved[4, 3] = moved[4, 2]
    assert step.error(replace(step.inputs, seq_lens=shorter)) > 10 * TOLERANCE["float32"]
    assert step.error(replace(step.inputs, block_table=moved)) > 10 * TOLERANCE["float32"]


def test_a_plan_takes_lengths_from_the_device() -> None:
    """The host may know upper bounds only."""
    step = Step("float32")
    bounds = step.inputs.host_seq_lens + 500
    assert step.error(replace(step.inputs, host_seq_lens=bounds, max_seq=int(bounds.max()))) < TOLERANCE["float32"]


def test_a_padding_row_reads_nothing_and_gives_zeros() -> None:
    step = Step("float32")
    ours = bind(InterpretedPlatform().kernels(step.spec), step.spec)
    lengths = step.inputs.seq_lens.clone()
    lengths[1] = 0
    out = step.attend(ours, replace(step.inputs, seq_lens=lengths))
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[0], step.attend(ours, step.inputs)[0])


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_split_inputs_add_up_each_time(tokens: int, dtype: str) -> None:
    generator = torch.Generator().manual_seed(1)
    spec = OpSpec(dtype, 64, 4, 4, 16, 100)
    linear = bind(InterpretedPlatform().kernels(spec), spec).linear
    for _ in range(2):
        x, weight = (normal(generator, rows, 1100, dtype=dtype, scale=0.1) for rows in (tokens, 70))
        right = x.double() @ weight.double().T
        assert normalized_error(linear(x, Weight(weight, (70, 1100)), None), right) < TOLERANCE[dtype]
        assert normalized_error(linear(x, Weight(weight.roll(1), (70, 1100)), None), right) > 0.1


@pytest.mark.parametrize("tokens", [5, 40])
@pytest.mark.parametrize("rows", [70, 600])
def test_tiles_that_the_chip_copies_give_the_same(tokens: int, rows: int) -> None:
    """Few and tall tiles, rows and inputs that fill none of them, with the tokens of another step behind."""
    spec, generator = OpSpec("float16", 64, 4, 4, 16, 100), torch.Generator().manual_seed(2)
    ops = bind(TritonKernels(Chip(PROCESSORS, tuning=H200, descriptors=True)).kernels(spec), spec)
    x = normal(generator, 2 * tokens, 200, dtype="float16")[:tokens]
    gate_up, down = (normal(generator, *shape, dtype="float16", scale=0.1) for shape in ((2 * rows, 200), (72, rows)))
    gates, others = (x.double() @ gate_up.double().T).chunk(2, 1)
    right = (torch.nn.functional.silu(gates) * others) @ down.double().T
    found = ops.gated_mlp(x, Weight(gate_up, (2 * rows, 200)), Weight(down, (72, rows)), "silu")
    assert normalized_error(found, right) < TOLERANCE["float16"]
    swapped = Weight(gate_up.roll(rows, 0), (2 * rows, 200))
    assert normalized_error(ops.gated_mlp(x, swapped, Weight(down, (72, rows)), "silu"), right) > 0.1


@pytest.mark.parametrize("vocabulary", [1, 2048, 5000])
def test_a_draw_by_parts_is_that_of_the_whole(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(9, vocabulary, generator=generator) * 3
    logits[1], logits[2, -1], logits[3, -1], logits[4] = float("-inf"), float("nan"), float("inf"), float("nan")
    logits[5, :-1] = float("-inf")
    numbers = torch.rand(9, 2, generator=generator)
    numbers[6:8] = torch.tensor([[0.0, 0.0], [1 - 2.0**-24, 1 - 2.0**-24]])
    temperature, top_k, ones = torch.linspace(0.1, 2, 9), torch.zeros(9, dtype=torch.int32), torch.ones(9)
    for min_p in (torch.zeros(9), torch.full((9,), 0.05)):
        given = logits, temperature, top_k, ones, min_p, numbers, 0
        ids, highest = Sampling(Chip(6)).sample(*given)
        wanted, peaks = ALL_OPS["sample"].reference(*given)
        good = peaks.isfinite()
        assert torch.equal(ids[good], wanted[good])
        assert torch.equal(highest.nan_to_num(7), peaks.nan_to_num(7))
        assert ((ids >= 0) & (ids < vocabulary + 128)).all()
