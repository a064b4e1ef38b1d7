"""Level 0: the device itself."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from anychip.testing.check import CheckFailedError, NotApplicableError, require, whole
from anychip.testing.subject import MEBIBYTE, Subject

if TYPE_CHECKING:
    import numpy.typing as npt

    from anychip.runner.platform import TorchPlatform

ALLOCATION = 128 * MEBIBYTE
ATTEMPTS = 8
"""Other processes' freeing may hide what we took, and a host counts what this process gave back as still its own."""


def _probe(subject: Subject) -> str:
    """Probing changes nothing in the process: no context, no threads, no defaults, no output."""
    first, again = subject.chosen.found.probe, subject.chosen.found.spec.probe()
    require(first == again, f"two probes disagree: {first} and {again}")
    command = [sys.executable, "-m", "anychip.testing.effects"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"looking for platforms failed:\n{done.stderr}")
    require(not done.stdout.strip(), f"looking for platforms changed:\n{done.stdout}")
    return f"score {first.score}, {first.devices} device(s)"


def _memory(subject: Subject) -> str:
    """Free and total memory make sense."""
    memory = subject.platform.memory()
    require(0 < memory.free <= memory.total, f"memory() says {memory.free} bytes free of {memory.total}")
    return f"{memory.free // MEBIBYTE} MiB free of {memory.total // MEBIBYTE}"


def _memory_moves(subject: Subject) -> str:
    """Free memory falls when something is allocated."""
    import torch

    platform = _wide(subject)
    falls, held = [], []
    for _ in range(ATTEMPTS):
        before = platform.memory().free
        held.append(torch.ones(ALLOCATION, dtype=torch.uint8, device=platform.device))
        platform.synchronize()
        falls.append(before - platform.memory().free)
        if falls[-1] >= ALLOCATION // 2:
            return f"{falls[-1] // MEBIBYTE} MiB less after {ALLOCATION // MEBIBYTE} were taken"
    listed = ", ".join(f"{fall // MEBIBYTE} MiB" for fall in falls)
    raise CheckFailedError(f"memory().free fell by {listed} each time that {ALLOCATION // MEBIBYTE} MiB were taken")


def _copies(subject: Subject) -> str:
    """What goes to the device comes back unchanged, also when the host's array changes meanwhile."""
    import torch

    platform = _wide(subject)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool):
        values = torch.arange(1009) * 7919
        sent = values.sin().to(dtype) if dtype.is_floating_point else (values % 2**31).to(dtype)
        expected = sent.clone()
        there = sent.to(platform.device, copy=True)
        platform.synchronize()
        sent.zero_()
        readable = there.float() if dtype == torch.bfloat16 else there
        fetched = torch.from_numpy(platform.fetch(readable).result()).to(dtype)
        require(torch.equal(fetched, expected), f"{dtype} values changed on their way to the device and back")
    for kind in ("int32", "int64", "float32", "bool"):
        _sent(platform, np.arange(1009).astype(kind))
    strided = torch.arange(60, dtype=torch.float32).view(6, 10)[::2, 1:7]
    back = torch.from_numpy(platform.fetch(strided.to(platform.device)).result())
    require(torch.equal(back, strided), "a strided tensor changed on its way to the device and back")
    return ""


def _sent(platform: TorchPlatform, values: npt.NDArray[Any]) -> None:
    """`send` makes a tensor, or fills one, and keeps nothing of the array."""
    import torch

    array = values.copy()
    fresh, filled = platform.send(array), torch.zeros_like(platform.send(array))
    returned = platform.send(array, filled)
    array[:] = 0
    for tensor in (fresh, filled, returned):
        same = np.array_equal(platform.fetch(tensor).result(), values)
        require(same, f"{values.dtype} values changed on their way through send() and back")
    require(returned.data_ptr() == filled.data_ptr(), "send() did not fill the tensor it was given")


def _synchronize(subject: Subject) -> str:
    """After `synchronize`, a long chain of work has been done."""
    import torch

    platform = _wide(subject)
    x = torch.eye(64, device=platform.device)
    for _ in range(200):
        x = x @ torch.eye(64, device=platform.device) + 1e-3
    platform.synchronize()
    total = float(platform.fetch(x[0, 1:2]).result()[0])
    require(abs(total - 0.2) < 1e-3, f"a chain of 200 additions of 0.001 gave {total}")
    return ""


def _wide(subject: Subject) -> TorchPlatform:
    platform = subject.torch_platform
    if platform is None:
        raise NotApplicableError("the platform brings its own runner and no torch device")
    return platform


DEVICE_CHECKS = tuple(
    whole(0, name, check, "device")
    for name, check in {
        "the probe has no side effects": _probe,
        "memory is reported": _memory,
        "memory moves when allocating": _memory_moves,
        "copies survive": _copies,
        "synchronize waits": _synchronize,
    }.items()
)
