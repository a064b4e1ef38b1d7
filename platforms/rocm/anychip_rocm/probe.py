"""Whether AMD GPUs can be used, read from the amdgpu driver's description of the machine: no HIP, no torch."""

from __future__ import annotations

import os
from pathlib import Path

from anychip.plugin import Probe
from anychip.plugin.torch_build import built_for
from anychip_rocm.names import SOLD_AS, name_of

SCORE = 100
NODES = "sys/class/kfd/kfd/topology/nodes"
"""A folder for each processor that the driver's compute part knows, the host's too."""
DEVICE = "dev/kfd"

DRIVER = "If the machine has such a GPU, install AMD's driver; a container has to be given /dev/kfd and /dev/dri."
GROUPS = "Add the user to the groups that own it, render and video on most systems."
NO_GPU = "`rocminfo` says more; a container has to be given /dev/dri too."
OTHER = f"Supported are {'; '.join(f'{name} ({sold_as})' for name, sold_as in SOLD_AS.items())}."
BUILD = "Install the build of PyTorch for ROCm, from the index that PyTorch's install page names for it."


def probe(root: Path = Path("/"), torch_folder: Path | None = None) -> Probe:
    """Score 0 with a reason where there is no driver, no GPU that is known, or another build of torch."""
    if not (root / DEVICE).exists():
        return Probe.cannot("no AMD driver with compute support is loaded", DRIVER)
    if not os.access(root / DEVICE, os.R_OK | os.W_OK):
        return Probe.cannot("this user may not open /dev/kfd", GROUPS)
    found = architectures(root)
    if not found:
        return Probe.cannot("the AMD driver shows no GPU", NO_GPU)
    if not {*found} & {*SOLD_AS}:
        return Probe.cannot(f"the GPU is a {found[0]}, which is not supported", OTHER)
    if not built_for("hip", torch_folder):
        return Probe.cannot("this build of PyTorch is not for AMD GPUs", BUILD)
    return Probe(SCORE, "", len(found))


def architectures(root: Path) -> list[str]:
    """Names of the GPUs' architectures, in the driver's order."""
    nodes = sorted((root / NODES).glob("*"), key=lambda node: int(node.name))
    versions = (_properties(node / "properties").get("gfx_target_version", 0) for node in nodes)
    return [name_of(version) for version in versions if version]


def _properties(path: Path) -> dict[str, int]:
    """Lines `name number` of a node; none where a container hides the node from us."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2}
