"""Every native kernel, in each variant that this processor runs, against its op's reference."""

from dataclasses import replace

import pytest
import torch
from tests.platforms.cpu.native import VARIANTS, native_library

from anychip.cache.storage import stored_as
from anychip.ops.attention_cases import attention_cases, batch_inputs, filled_cache, run_attention_case, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import TOLERANCE, OpSpec
from anychip.ops.registry import OPS
from anychip.ops.rope import rotation_table
from anychip.ops.specs import case_specs
from anychip.plugin.contract import KVSpec, Plane
from anychip.testing.compare import difference, normalized_error, wide
from anychip.weights.weight import Weight
from anychip_cpu.kernels import cpu_kernels
from anychip_cpu.native.attention import unsupported
from anychip_cpu.native.kernels import native_kernels
from anychip_cpu.native.linear import NativeLinear

DTYPES = ("float32", "bfloat16")
ROW_WISE = (
    "rms_norm",
    "add_rms_norm",
    "silu_mul",
    "gelu_mul",
    "linear",
    "norm_linear",
    "gated_mlp",
    "greedy",
    "sample",
)


@pytest.fixture(scope="module", params=VARIANTS)
def library(request):
    return native_library(request.param)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def bound(library, spec):
    return bind({**cpu_kernels(), **native_kernels(library, spec)}, spec)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_kernels(library, name, dtype):
    for index, spec in enumerate(case_specs(dtype)):
        ops, references = bound(library, spec), bind({}, spec)
        for case in OPS[name].generate(torch.Generator().manual_seed(index), spec):
            expected = getattr(references, name)(*(wide(argument) for argument in case.arguments))
            got = getattr(ops, name)(*case.arguments)
            wrong = difference(got, expected, getattr(torch, dtype), TOLERANCE["native", dtype])
            assert not wrong, f"{case.label}: {wrong}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_dtype", ["", "int8"])
def test_attention_as_a_family(library, dtype, kv_dtype):
    numeric = "coded-cache" if kv_dtype else "native"
    for index, spec in enumerate(replace(spec, kv_dtype=kv_dtype) for spec in case_specs(dtype)):
        ops, references = bound(library, spec), bind({}, spec)
        if unsupported(spec, library):
            continue
        for case in attention_cases(torch.Generator().manual_seed(index), spec):
            got, expected = (run_attention_case(chosen, case) for chosen in (ops, references))
            wrong = difference(got, expected, getattr(torch, dtype), TOLERANCE[numeric, dtype])
            assert not wrong, f"{spec.head_dim} {case.label}: {wrong}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
def test_rotating_and_writing_in_one(library, dtype, normed):
    for index, spec in enumerate(case_specs(dtype)):
        if unsupported(spec, library):
            continue
        table = rotation_table(spec.head_dim // 4 * 2 if normed else spec.head_dim, length=256)
        gains = torch.randn(2, spec.head_dim, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
        for case in attention_cases(torch.Generator().manual_seed(index), spec):
            results = []
            for ops in (bound(library, spec), bind({}, spec)):
                cache, plan = filled_cache(ops, case)
                norms = (gains[0], gains[1]) if normed else (None, None)
                q = ops.qk_norm_rope_kv_write(
                    case.q, case.k, case.v, *norms, 1e-5, case.inputs.positions, table, cache, plan
                )
                results.append((q, ops.paged_attention(q, cache, plan, case.scale)))
            wrong = difference(*results, getattr(torch, dtype), TOLERANCE["native", dtype])
            assert not wrong, f"{spec.head_dim} {case.label}: {wrong}"


def long_step(rows, spec, window, seed=0, spoil=None):
    """A cache of rows with (cached, new) tokens, its plan, and the step's queries; `spoil` is a token without value."""
    generator = torch.Generator().manual_seed(seed)
    planes = tuple(Plane(name, (spec.num_kv_heads, spec.head_dim), spec.dtype) for name in "kv")
    table, blocks = shuffled_table(generator, [sum(row) for row in rows], spec.block_size)
    kv_spec = stored_as(KVSpec("full" if window is None else "sliding", planes, window), spec.kv_dtype or "auto")
    everything = batch_inputs(tuple((0, sum(row)) for row in rows), table)
    tokens = sum(sum(row) for row in rows)
    shape = (tokens, spec.num_kv_heads, spec.head_dim)
    k, v = (torch.randn(shape, generator=generator).to(getattr(torch, spec.dtype)) for _ in "kv")
    q = torch.randn(sum(new for _, new in rows), spec.num_heads, spec.head_dim, generator=generator)

    if spoil is not None:
        v[spoil] = float("nan")

    def attend(ops, poison=None):
        cache = ops.new_cache(kv_spec, blocks, spec.block_size, "cpu")
        if poison is not None:
            cache.k.fill_(poison)
            cache.v.fill_(poison)
        ops.kv_write(k, v, cache, ops.plan_attention(everything, kv_spec, spec.block_size))
        plan = ops.plan_attention(batch_inputs(rows, table), kv_spec, spec.block_size)
        return ops.paged_attention(q.to(k.dtype), cache, plan, spec.head_dim**-0.5)

    return attend


LONG = ((1300, 1), (511, 1), (512, 1), (3, 1), (700, 5), (100, 150), (0, 33))
SPEC = OpSpec(dtype="bfloat16", hidden_size=48, num_heads=6, num_kv_heads=2, head_dim=64, vocab_size=64, block_size=16)


@pytest.mark.parametrize("window", [None, 200, 600])
def test_long_contexts_are_merged(library, window):
    spec = replace(SPEC, dtype="float32")
    attend = long_step(LONG, spec, window)
    got, expected = attend(bound(library, spec)), attend(bind({}, spec))
    assert normalized_error(got, expected) < TOLERANCE["native", "float32"]
    control = long_step(LONG, spec, 200 if window is None else window - 1)(bind({}, spec))
    assert normalized_error(got, control) > 1e-4


@pytest.mark.parametrize("window", [None, 77])
def test_another_requests_garbage_is_never_seen(library, window):
    attend = long_step(LONG, SPEC, window)
    ops = bound(library, SPEC)
    assert torch.equal(attend(ops, float("nan")), attend(ops, 0.0))
    small = replace(SPEC, kv_dtype="int8")
    attend, ops = long_step(LONG, small, window), bound(library, small)
    assert torch.equal(attend(ops, -1), attend(ops, 0))  # as scales, such bytes are no number


def test_a_cache_of_codes_is_close_and_shows_what_is_no_number(library):
    small = replace(SPEC, kv_dtype="int8", dtype="float32")
    attend = long_step(LONG, small, None)
    got, same = attend(bound(library, small)), attend(bind({}, small))
    assert normalized_error(got, same) < TOLERANCE["coded-cache", "float32"]
    whole = long_step(LONG, replace(SPEC, dtype="float32"), None)(bind({}, SPEC))
    assert 1e-4 < normalized_error(got, whole) < TOLERANCE["coded-cache", "float32"]
    broken = long_step(((3, 1), (5, 1)), small, None, spoil=2)(bound(library, small))
    assert broken[0].isnan().all()
    assert broken[1].isfinite().all()


def test_results_do_not_depend_on_the_number_of_threads(library, one_thread):
    attend = long_step(LONG, SPEC, None)
    small = replace(SPEC, kv_dtype="int8")
    attend_codes = long_step(LONG, small, None)
    linear = NativeLinear(library)
    generator = torch.Generator().manual_seed(0)
    weight = linear.prepare_weight(Weight(torch.randn(330, 96, generator=generator).bfloat16(), (330, 96)))
    inputs = [torch.randn(rows, 96, generator=generator).bfloat16() for rows in (1, 7, 16, 17, 130)]

    def everything():
        attended = (attend(bound(library, SPEC)), attend_codes(bound(library, small)))
        return [*attended, *(linear.linear(x, weight, None) for x in inputs)]

    alone = everything()
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert all(torch.equal(one, other) for one, other in zip(alone, everything(), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_widths_and_many_rows(library, dtype):
    generator = torch.Generator().manual_seed(0)
    linear = NativeLinear(library)
    for rows, columns in ((33, 77), (1, 2), (64, 700)):
        values = torch.randn(rows, columns, generator=generator).to(getattr(torch, dtype))
        weight = linear.prepare_weight(Weight(values, (rows, columns)))
        assert weight.values is None
        for tokens in (1, 2, 5, 13, 16, 17, 49, 100):
            x = torch.randn(tokens, columns, generator=generator).to(values.dtype)
            expected = x.double() @ values.double().T
            assert normalized_error(linear.linear(x, weight, None), expected) < TOLERANCE["native", dtype]


def test_the_highest_logit(library):
    nan, infinity = float("nan"), float("inf")
    logits = torch.zeros(6, 41)
    logits[0, 40] = logits[1, 7] = logits[1, 9] = 1.0
    logits[2, 3], logits[3, 40], logits[4, 5], logits[5] = nan, nan, infinity, -infinity
    for given in (logits, logits.bfloat16(), torch.cat([logits, logits], dim=1)[:, :41]):
        ids, highest = library.ops.greedy(given)
        assert ids[[0, 1, 4]].tolist() == [40, 7, 5]
        assert highest[[0, 1, 4, 5]].tolist() == [1.0, 1.0, infinity, -infinity]
        assert highest[[2, 3]].isnan().all()


def test_models_that_the_attention_kernels_do_not_take(library):
    assert not unsupported(SPEC, library)
    for change in ({"head_dim": 24}, {"block_size": 4}, {"block_size": 256}, {"kv_dtype": "int4"}, {"num_heads": 98}):
        spec = replace(SPEC, **change)
        assert unsupported(spec, library)
        assert "paged_attention" not in native_kernels(library, spec)


def test_a_wrong_call_is_refused(library):
    packed = library.ops.pack(torch.ones(32, 8))
    with pytest.raises(RuntimeError, match="differ in width"):
        library.ops.linear(torch.ones(1, 9), packed, None)
    with pytest.raises(RuntimeError, match="not a packed weight"):
        library.ops.linear(torch.ones(1, 8), torch.zeros(4096, dtype=torch.uint8), None)


def test_an_empty_step(library):
    assert library.ops.linear(torch.ones(0, 8), library.ops.pack(torch.ones(32, 8)), None).shape == (0, 32)
    attend = long_step(((5, 1),), SPEC, None)
    assert attend(bound(library, SPEC)).isfinite().all()
