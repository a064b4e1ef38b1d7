"""An Intel GPU that is not there: its tensors are fake, launches compile to SPIR-V on Triton's own path and do nothing.

Needs triton-xpu 3.3, the only build of Triton for these GPUs on pip's index. Its backend builds parts of itself against
SYCL to ask the device what it can do; here a table answers.
"""

import importlib
import pkgutil
import subprocess
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.intel import driver as intel_driver
from triton.runtime.driver import driver

import anychip.triton.programs
from anychip.plugin.contract import Memory, Pending
from anychip.runner.platform import TorchPlatform
from anychip_xpu.chips import MATRIX, PLAIN, kind_of
from anychip_xpu.platform import XpuPlatform

GPU = torch.device("xpu", 0)


@dataclass(frozen=True)
class Target:
    """What the driver says of a chip, as far as Triton and we ask."""

    sub_group_sizes: tuple[int, ...]
    block_io: bool
    shared: int
    cores: int

    @property
    def properties(self):
        return {
            "name": "a GPU", "sub_group_sizes": list(self.sub_group_sizes), "has_fp64": True,
            "has_subgroup_matrix_multiply_accumulate": True, "has_subgroup_2d_block_io": self.block_io,
            "has_bfloat16_conversions": True, "max_work_group_size": 1024,
        }  # fmt: skip


TARGETS = {"pvc": Target((16, 32), True, 128 * 1024, 64), "dg2": Target((8, 16, 32), False, 64 * 1024, 32)}
assert [kind_of(target.sub_group_sizes, matrix=True) for target in TARGETS.values()] == [MATRIX, PLAIN]


class Loader:
    """What Triton asks of a driver to load a kernel."""

    def __init__(self, shared):
        self.shared = shared

    def get_device_properties(self, device):
        return {"max_shared_mem": self.shared}

    def load_binary(self, *arguments):
        return 1, 1, 0, 0


class Launcher:
    """Launches nothing."""

    def __init__(self, source, metadata):
        pass

    def __call__(self, *arguments):
        pass


class FakeDriver(DriverBase):
    """A driver of one target."""

    launcher_cls = Launcher

    def __init__(self, target):
        self.target = GPUTarget("xpu", target.properties, 32)
        self.utils = Loader(target.shared)

    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def get_active_torch_device(self):
        return GPU

    def get_benchmarker(self):
        raise AssertionError("nothing is measured here")


class Zeros(Pending):
    """What a fake tensor brings back."""

    def __init__(self, tensor):
        assert tensor.device == GPU
        self.array = np.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    def result(self):
        return self.array


class FakeXpu(XpuPlatform):
    """The platform as it is, but for the calls that go to the driver."""

    def memory(self):
        return Memory(2**36, 2**36)

    def synchronize(self):
        pass

    def notes(self):
        return ()

    def runner(self, config):
        return TorchPlatform.runner(self, config)

    def send(self, array, out=None):
        made = torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, device=self.device)
        assert out is None or (out.shape, out.dtype) == (made.shape, made.dtype)
        return made if out is None else out

    def fetch(self, tensor):
        return Zeros(tensor)


def use(name, folder: Path):
    """The platform of a target, with nothing compiled for it yet; `folder` takes what has to be built."""
    target = TARGETS[name]
    intel_driver.find_sycl = lambda include: (include, [])
    parser = types.SimpleNamespace(parse_device_arch=lambda architecture: "")  # the table's answers stand
    backends["intel"].compiler.__init__.__globals__["compile_module_from_src"] = lambda *_: parser
    torch.ops.load_library(_guard(folder))
    driver.set_active(FakeDriver(target))
    for program in programs().values():
        program.device_caches.clear()
    return FakeXpu(GPU, kind_of(target.sub_group_sizes, matrix=True), target.cores)


def programs():
    """Every program by name."""
    found = {}
    for module in pkgutil.iter_modules(anychip.triton.programs.__path__, "anychip.triton.programs."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, triton.runtime.jit.JITFunction):
                found[name] = value
    return found


def compiled():
    """(name, kernel) of all that was compiled since `use`."""
    for name, program in programs().items():
        if 0 in program.device_caches:
            for kernel in program.device_caches[0][0].values():
                yield name, kernel


def _guard(folder):
    built, root = folder / "guard.so", Path(torch.__file__).parent
    if not built.exists():
        source = Path(__file__).with_name("guard.cpp")
        flags = ("-std=c++20", "-shared", "-fPIC", f"-I{root}/include", f"-L{root}/lib", "-lc10")
        command = ["g++", source, "-o", built, *flags]
        subprocess.run(command, check=True)
    return built
