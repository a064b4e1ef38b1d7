"""The Intel platform without a GPU: what it declares, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=False)

from anychip.errors import UserError
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip_xpu.chips import MATRIX, PLAIN, kind_of
from anychip_xpu.platform import XpuPlatform, open_gpu

GPU = torch.device("xpu", 0)


def test_chips_with_matrix_instructions_of_16_lanes_use_them():
    assert kind_of([16, 32], matrix=True) is MATRIX
    assert kind_of([8, 16, 32], matrix=True) is PLAIN
    assert kind_of([16, 32], matrix=False) is PLAIN


@pytest.mark.parametrize(("kind", "formats"), [(MATRIX, {"int4", "int8"}), (PLAIN, set())])
def test_capabilities_follow_the_kind_of_chip(kind, formats):
    platform = XpuPlatform(GPU, kind, 56)
    assert platform.device == GPU
    assert platform.chip.processors == 56
    assert not platform.chip.overlap
    assert formats <= {*platform.capabilities.weight_formats}
    assert "fp8" not in platform.capabilities.weight_formats
    assert bool(platform.capabilities.weight_formats) == bool(formats)
    assert platform.capabilities.collective_backend == torch.distributed.Backend.XCCL
    assert platform.capabilities.dtypes[0] == "bfloat16"


@pytest.mark.parametrize(("dim", "kind"), [(64, "kernel"), (128, "reference")])
def test_heads_that_do_not_fit_the_registers_run_on_the_reference(dim, kind):
    spec = OpSpec("bfloat16", 1024, 8, 2, dim, 1000)
    found = {one.op: one for one in bind(XpuPlatform(GPU, PLAIN, 32).kernels(spec), spec).bindings}
    assert {found[op].kind for op in ("paged_attention", "kv_write", "new_cache")} == {kind}
    assert found["linear"].kind == "kernel"
    assert kind == "kernel" or "head size 128 is larger than 64" in found["kv_write"].reasons[0]
    found = {one.op: one for one in bind(XpuPlatform(GPU, MATRIX, 64).kernels(spec), spec).bindings}
    assert found["paged_attention"].kind == "kernel"


@pytest.mark.skipif(torch.xpu.is_available(), reason="this machine has one")
def test_a_machine_whose_driver_offers_no_gpu_says_what_to_install():
    with pytest.raises(UserError, match="offers PyTorch no GPU") as raised:
        open_gpu(0)
    assert "libze-intel-gpu1" in raised.value.remedy
