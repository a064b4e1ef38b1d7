"""Attention of Intel's extension for PyTorch on the processor: numbers against the definition, and what it refuses."""

import importlib.util
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("intel_extension_for_pytorch") is None:
    pytest.skip("it is not installed; ci/lane_xpu.sh runs these tests", allow_module_level=True)

from anychip.ops.attention_cases import AttentionCase, attention_cases, run_attention_case
from anychip.ops.bind import bind
from anychip.ops.op import TOLERANCE, OpSpec
from anychip_xpu.ipex_platform import IpexPlatform


@pytest.fixture(scope="module")
def platform():
    return IpexPlatform()


def wide(case: AttentionCase) -> AttentionCase:
    planes = tuple(replace(plane, dtype="float32") for plane in case.spec.planes)
    tensors = {name: getattr(case, name).float() for name in ("q", "k", "v", "history_k", "history_v")}
    return replace(case, spec=replace(case.spec, planes=planes), **tensors)


def errors(platform, spec: OpSpec, mistake: bool = False) -> list[float]:
    """Of each case; with a mistake the step's keys are in the wrong order."""
    there, right, found = bind(platform.kernels(spec), spec), bind({}, spec), []
    for case in attention_cases(torch.Generator().manual_seed(1), spec):
        given = replace(case, k=case.k.flip(0)) if mistake else case
        out = run_attention_case(there, given)
        expected = run_attention_case(right, wide(case))
        found.append(float((out.float() - expected).norm() / expected.norm()))
    return found


@pytest.mark.parametrize("dim", [16, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_batch_is_right(platform, dtype, dim):
    spec = OpSpec(dtype, 8 * dim, 8, 2, dim, 1000, windows=(7, 33))
    assert max(errors(platform, spec)) <= TOLERANCE["native", dtype]
    assert max(errors(platform, replace(spec, windows=(), softcap=True))) <= TOLERANCE["native", dtype]


def test_the_check_sees_wrong_keys(platform):
    assert max(errors(platform, OpSpec("float32", 512, 8, 2, 64, 1000), mistake=True)) > 0.1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_dim": 8}, "head size 8 is not between 16 and 256"),
        ({"sinks": True}, "attention sinks"),
        ({"softcap": True, "windows": (7,)}, "a soft cap together with a sliding window"),
        ({"kv_dtype": "int8"}, "a cache in int8 for a model in bfloat16"),
    ],
)
def test_what_it_cannot_do_runs_on_the_reference_and_says_why(platform, changes, reason):
    spec = replace(OpSpec("bfloat16", 512, 8, 2, 64, 1000), **changes)
    bindings = {found.op: found for found in bind(platform.kernels(spec), spec).bindings}
    assert bindings["paged_attention"].kind == "reference"
    assert reason in "; ".join(bindings["paged_attention"].reasons)
