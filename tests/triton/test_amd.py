"""The AMD platform without a GPU: what it declares, what it refuses, and its device code under fake tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=False)

from torch._subclasses.fake_tensor import FakeTensorMode

from anychip.errors import UserError
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Memory, Plane
from anychip.testing.record import read_record
from anychip.testing.support import support
from anychip.triton.packing import Codes
from anychip.triton.platform import GAPS
from anychip.triton.sizes import captured_sizes, most_padded
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme
from anychip.weights.weight import Weight
from anychip_rocm.chips import CHIPS
from anychip_rocm.names import SOLD_AS
from anychip_rocm.platform import RocmPlatform, architecture_of

FLOAT8 = {
    "gfx90a": None,
    "gfx942": torch.float8_e4m3fnuz,
    "gfx950": torch.float8_e4m3fn,
    "gfx1100": None,
    "gfx1201": torch.float8_e4m3fn,
}
LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
ROOT = Path(__file__).parents[2]
GPU = torch.device("cuda", 0)


def test_every_architecture_is_described() -> None:
    assert CHIPS.keys() == SOLD_AS.keys() == FLOAT8.keys()


@pytest.mark.parametrize("name", CHIPS)
def test_capabilities_follow_the_architecture(name: str) -> None:
    platform = RocmPlatform(GPU, CHIPS[name], 304)
    assert platform.device == GPU
    assert platform.chip.processors == 304
    assert platform.chip.tuning.lanes == LANES[name]
    assert ("fp8" in platform.capabilities.weight_formats) == (FLOAT8[name] is not None)
    assert {"int4", "int8"} <= {*platform.capabilities.weight_formats}
    assert ("fp8" in platform.capabilities.kv_cache_dtypes) == (FLOAT8[name] == torch.float8_e4m3fn)
    assert platform.capabilities.collective_backend == "nccl"
    assert platform.capabilities.dtypes[0] == "bfloat16"
    assert not platform.chip.overlap


def test_more_requests_run_at_once_where_there_is_memory() -> None:
    for gibibytes, rows in ((24, 256), (192, 1024)):
        platform = RocmPlatform(GPU, CHIPS["gfx942"], 304, gibibytes << 30)
        assert platform.capabilities.max_num_seqs == rows
        sizes = captured_sizes(KVPlan((), 64, rows, 4096, 8192))
        assert sizes.single[-1] == rows
        assert sizes.rows == (8, 40, 257)
        assert sizes.beside[-1] == rows
    sizes = captured_sizes(KVPlan((), 64, 2048, 4096, 8192))
    assert sizes.single[-1] == 2048 and sizes.beside[-1] == 1024  # what planning takes, prompts included


class Driver:
    """Torch's module of a type of device, after a load that took 50 bytes more than it kept."""

    allocated, most, reserved = 30, 80, 90

    def reset_peak_memory_stats(self, device: object) -> None:
        self.most = self.allocated

    def memory_allocated(self, device: object) -> int:
        return self.allocated

    def max_memory_allocated(self, device: object) -> int:
        return self.most

    def memory_reserved(self, device: object) -> int:
        return self.reserved

    def mem_get_info(self, device: object) -> tuple[int, int]:
        return 910, 1000


def test_captured_steps_have_as_much_memory_as_the_worst_step_took() -> None:
    platform = RocmPlatform(GPU, CHIPS["gfx942"], 304)
    driver = platform._torch = Driver()

    def worst_step() -> Memory:
        driver.allocated = 33  # caches
        platform.begin_steps()
        driver.most = 45
        return platform.memory()

    assert platform.memory() == Memory(920, 1000)
    assert platform.measured(worst_step, 2.0) == Memory(910 + 90 - 45 - int((45 - 33) * 2.0 * GAPS), 1000)
    assert most_padded(1000, 100) == 1024 + 100


@pytest.mark.parametrize("name", CHIPS)
def test_8_bit_floats_are_refused_where_there_is_no_arithmetic_on_them(name: str) -> None:
    CHIPS[name].check(None)
    CHIPS[name].check("int8")
    if FLOAT8[name] is None:
        with pytest.raises(UserError, match=f"{name} has no arithmetic on 8-bit floats") as raised:
            CHIPS[name].check("fp8")
        assert "int8" in raised.value.remedy
    else:
        CHIPS[name].check("fp8")


def test_an_architecture_is_known_by_torchs_name_and_another_is_refused() -> None:
    assert architecture_of("gfx942:sramecc+:xnack-") is CHIPS["gfx942"]
    with pytest.raises(UserError, match="This GPU is a gfx906"):
        architecture_of("gfx906:sramecc+")


@pytest.mark.parametrize("name", CHIPS)
def test_weights_and_caches_are_made_on_the_device(name: str) -> None:
    platform = RocmPlatform(GPU, CHIPS[name], 304)
    spec = OpSpec("bfloat16", 64, 4, 2, 32, 100)
    layer = KVSpec("full", tuple(Plane(plane, (2, 32), "bfloat16") for plane in "kv"))
    with FakeTensorMode():
        plan = KVPlan((KVGroup(layer, (0, 1), 7),), 16, 4, 64, 32)
        caches = platform.allocate_kv(plan, bind(platform.kernels(spec), spec))
        assert [cache.k.shape for cache in caches] == [(7, 2, 16, 32)] * 2
        assert {cache.v.device for cache in caches} == {GPU}
        for scheme in ("int4", "int8", "fp8"):
            if scheme not in platform.capabilities.weight_formats:
                continue
            plain = Weight(torch.empty(48, 128, dtype=torch.bfloat16, device=GPU), (48, 128))
            codes = platform.prepare_weight(_quantized(plain, scheme)).prepared
            assert isinstance(codes, Codes)
            assert codes.values.device == codes.scale.device == GPU
            assert codes.values.dtype == {"int4": torch.int32, "int8": torch.int8, "fp8": FLOAT8[name]}[scheme]


class Subject:
    """What `support` asks of the kit's."""

    def __init__(self, platform: RocmPlatform) -> None:
        self.torch_platform = platform


@pytest.mark.parametrize("name", CHIPS)
def test_the_record_says_how_each_op_runs(name: str) -> None:
    record = read_record(ROOT / "docs/records/rocm.json", "rocm")
    assert support(Subject(RocmPlatform(GPU, CHIPS[name], 304))) == record.ops  # type: ignore[arg-type]
    assert all(each in record.claim("kernels").on for each in CHIPS)


def _quantized(plain: Weight, name: str) -> Weight:
    bits, group = (4, 32) if name == "int4" else (8, 0)
    return quantize(plain, Scheme(name, bits, group, name == "int4", "none" if name == "int4" else "token"))
