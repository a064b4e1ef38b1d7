"""Every kernel of the CPU platform against its op's reference, over the op's own cases."""

from dataclasses import replace

import pytest
import torch

from anychip.ops.attention_cases import attention_cases, filled_cache, run_attention_case
from anychip.ops.bind import bind
from anychip.ops.op import TOLERANCE
from anychip.ops.registry import OPS
from anychip.ops.rope import rotation_table
from anychip.ops.specs import case_specs
from anychip.weights.weight import Weight
from anychip_cpu.attention import side_by_side
from anychip_cpu.kernels import cpu_kernels
from anychip_cpu.linear import linear, packs, prepare_weight
from anychip_cpu.platform import CpuPlatform

DTYPES = ("float32", "bfloat16")
ROW_WISE = ("rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "rope", "linear", "embedding", "greedy", "sample")


def widened(value):
    """The same argument in float32, for the reference."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Weight):
        return replace(value, values=value.values.float())
    return value


def check_close(got, expected, tolerance, label):
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape, label
        error = (one.double() - other.double()).norm() / other.double().norm().clamp(min=1e-30)
        assert error <= tolerance, f"{label}: {error}"


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_kernels(name, dtype):
    op, kernel = OPS[name], cpu_kernels()[name]
    for index, spec in enumerate(case_specs(dtype)):
        for case in op.generate(torch.Generator().manual_seed(index), spec):
            expected = op.reference(*(widened(argument) for argument in case.arguments))
            got = kernel.function(*case.arguments)
            floating = any(part.dtype == getattr(torch, dtype) for part in outputs(got))
            assert floating or name in ("greedy", "sample")
            check_close(outputs(got), outputs(expected), op.tolerance["native", dtype], f"{name} {case.label}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_kernels_as_a_family(dtype):
    for index, spec in enumerate(case_specs(dtype)):
        ops, reference = bind(cpu_kernels(), spec), bind({}, spec)
        for case in attention_cases(torch.Generator().manual_seed(index), spec):
            got, expected = (run_attention_case(chosen, case) for chosen in (ops, reference))
            assert got.dtype == expected.dtype
            check_close([got], [expected], TOLERANCE["native", dtype], f"{spec.head_dim} {case.label}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fused", [False, True])
def test_rotating_and_writing_in_one(dtype, fused):
    for index, spec in enumerate(case_specs(dtype)):
        table = rotation_table(spec.head_dim, length=256)
        results = []
        for kernels in (cpu_kernels(), {}):
            ops = bind(kernels, spec)
            for case in attention_cases(torch.Generator().manual_seed(index), spec):
                cache, plan = filled_cache(ops, case)
                q, k = case.q, case.k
                if fused:
                    joint = torch.cat([case.q, case.k, case.v], dim=1)
                    q, k, _ = joint.split([q.shape[1], k.shape[1], k.shape[1]], dim=1)
                    assert side_by_side(q, k)
                norms = (None, None) if fused else (q[0, 0].clone(), k[0, 0].clone())
                turned = ops.qk_norm_rope_kv_write(
                    q, k, case.v, *norms, 1e-5, case.inputs.positions, table, cache, plan
                )
                results.append((turned, ops.paged_attention(turned, cache, plan, case.scale)))
        half = len(results) // 2
        for got, expected in zip(results[:half], results[half:], strict=True):
            check_close(got, expected, TOLERANCE["native", dtype], "rotated")


def test_another_requests_garbage_is_never_seen():
    spec = case_specs("float32")[1]
    for case in attention_cases(torch.Generator().manual_seed(0), spec):
        clean, dirty = bind(cpu_kernels(), spec), bind(cpu_kernels(), spec)
        expected = run_attention_case(clean, case)
        cache = dirty.new_cache(case.spec, case.num_blocks, case.block_size, "cpu")
        cache.k.fill_(float("nan"))
        cache.v.fill_(float("inf"))
        if case.history is not None:
            dirty.kv_write(
                case.history_k, case.history_v, cache, dirty.plan_attention(case.history, case.spec, case.block_size)
            )
        plan = dirty.plan_attention(case.inputs, case.spec, case.block_size)
        dirty.kv_write(case.k, case.v, cache, plan)
        got = dirty.paged_attention(case.q, cache, plan, case.scale, case.softcap, case.sinks)
        check_close([got], [expected], 1e-6, case.label)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_are_copied(dtype):
    spec = case_specs(dtype)[0]
    case = next(iter(attention_cases(torch.Generator().manual_seed(0), spec)))
    ops = bind(cpu_kernels(), spec)
    cache = ops.new_cache(case.spec, 5, 16, "cpu")
    cache.k[2], cache.v[2] = 3.0, 4.0
    ops.copy_blocks(cache, torch.tensor([2, 2]), torch.tensor([4, 1]))
    assert [float(cache.k[block, 0, 0, 0]) for block in range(5)] == [0, 3, 3, 0, 3]
    assert [float(cache.v[block, -1, -1, -1]) for block in range(5)] == [0, 4, 4, 0, 4]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_prepared_weights_mean_the_same(dtype, rows):
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(50, 36, generator=generator).to(getattr(torch, dtype)) / 6
    x, bias = torch.randn(rows, 36, generator=generator).to(values.dtype), torch.randn(50).to(values.dtype)
    plain = Weight(values, (50, 36))
    prepared = CpuPlatform().prepare_weight(plain)
    assert (prepared.values is None) == packs(values.dtype)
    for given in (None, bias):
        expected = OPS["linear"].reference(x.float(), widened(plain), None if given is None else given.float())
        for weight in (plain, prepared):
            check_close([linear(x, weight, given)], [expected], TOLERANCE["native", dtype], "linear")


def test_a_quantized_weight_is_left_alone():
    values = torch.ones(4, 4, dtype=torch.int8)
    from anychip.weights.weight import Quantization

    weight = Weight(values, (4, 4), quantization=Quantization("x", 8, 0, torch.full((4, 1), 0.5)))
    assert prepare_weight(weight) is weight
    assert torch.equal(linear(torch.ones(1, 4), weight, None), torch.full((1, 4), 2.0))


def test_every_op_is_a_kernel():
    spec = case_specs("float32")[2]
    assert bind(CpuPlatform().kernels(spec), spec, strict=True)
