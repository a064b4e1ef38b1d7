"""Whether NVIDIA GPUs can be used, asked of the driver's management library: no context, no CUDA, no torch.

CUDA itself is not asked, because a process that has called it can no longer be forked.
"""

from __future__ import annotations

import ctypes

from anychip.plugin import Probe
from anychip.plugin.torch_build import built_for

MIN_CAPABILITY = (8, 0)
"""Least compute capability: from it on matrix units take bfloat16."""
SCORE = 100
LIBRARY = "libnvidia-ml.so.1"

INSTALL = "If the machine has such a GPU, install its driver; a container has to be given both."
UPDATE = "`nvidia-smi` says more; after an update of the driver, restart the machine."
NO_GPU = "`nvidia-smi` says more; a container has to be given its GPUs."
OLD_GPU = "Another platform runs on this machine: `anychip platforms` lists them."
BUILD = "Install the build of PyTorch for CUDA, as PyTorch's install page says."


def probe() -> Probe:
    """Score 0 with a reason where there is no driver, no GPU that is new enough, or another build of torch."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return Probe.cannot("no NVIDIA driver is installed", INSTALL)
    if library.nvmlInit_v2():
        return Probe.cannot("the NVIDIA driver does not answer", UPDATE)
    try:
        found = _capabilities(library)
    finally:
        library.nvmlShutdown()
    if not found:
        return Probe.cannot("the NVIDIA driver finds no GPU", NO_GPU)
    if max(found) < MIN_CAPABILITY:
        has, needs = (".".join(map(str, version)) for version in (max(found), MIN_CAPABILITY))
        return Probe.cannot(f"the GPU has compute capability {has}, and {needs} is needed", OLD_GPU)
    if not built_for("cuda"):
        return Probe.cannot("this build of PyTorch is not for NVIDIA GPUs", BUILD)
    return Probe(SCORE, "", len(found))


def _capabilities(library: ctypes.CDLL) -> list[tuple[int, int]]:
    """Compute capability of each GPU."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        failed = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        failed = failed or library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        if not failed:
            found.append((major.value, minor.value))
    return found
