"""Targets without their devices, and what was compiled for them."""

from __future__ import annotations

import importlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from anychip.triton.ahead.absent import Target, use_absent
from anychip.triton.keys import program_modules
from anychip_rocm.chips import CHIPS

NVIDIA = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
"""KiB of shared memory that a program may take."""
TARGETS = {
    **{name: GPUTarget("cuda", int(name.removeprefix("sm_")), 32) for name in NVIDIA},
    **{name: GPUTarget("hip", name, found.tuning.lanes) for name, found in CHIPS.items()},
}
SHARED = {
    **{name: kibibytes * 1024 for name, kibibytes in NVIDIA.items()},
    **{name: found.local_memory for name, found in CHIPS.items()},
}
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Compiled:
    """What became of one variant of a program."""

    name: str
    identity: str
    """Triton's hash of it."""
    registers: int
    """Of a thread; on AMD those for matrix sums included."""
    spilled: int
    """Registers (AMD) or bytes (NVIDIA) that went to memory."""
    shared: int
    """Bytes of fast memory."""
    text: str
    """Assembly."""
    launch: str
    """Warps, stages and constants."""


def programs() -> dict[str, Any]:
    """Every program by name."""
    found = {}
    for module in program_modules():
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, triton.runtime.jit.JITFunction):
                found[name] = value
    return found


def use(target: str) -> None:
    """Make `target` the device, with nothing compiled for it yet."""
    found = TARGETS[target]
    use_absent(Target(found.backend, found.arch, found.warp_size, SHARED[target]))
    for program in programs().values():
        program.device_caches.clear()


def compiled() -> Iterator[Compiled]:
    """What was compiled since `use`."""
    for name, program in programs().items():
        for kernel in program.device_caches[0][0].values() if 0 in program.device_caches else ():
            if "cubin" in kernel.asm:
                registers, spilled = _cubin_resources(kernel.asm["cubin"])
                text = kernel.asm["ptx"]
            else:
                text = kernel.asm["amdgcn"]
                registers, spilled = (int(_field(text, field)) for field in ("vgpr_count", "vgpr_spill_count"))
            made = kernel.metadata
            constants = {kernel.src.fn.arg_names[place]: value for (place, *_), value in kernel.src.constants.items()}
            launch = f"warps {made.num_warps} stages {made.num_stages} {constants}"
            yield Compiled(name, made.hash, registers, spilled, made.shared, text, launch)


def _cubin_resources(cubin: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        arguments = [CUOBJDUMP, "--dump-resource-usage", file.name]
        usage = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (re.search(rf"{field}:(\d+)", usage) for field in ("REG", "STACK", "LOCAL"))
    assert registers and stack and local, usage
    return int(registers[1]), int(stack[1]) + int(local[1])


def _field(text: str, name: str) -> str:
    match = re.search(rf"\.{name}:\s*(\d+)", text)
    assert match, name
    return match[1]
