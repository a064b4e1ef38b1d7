"""What can be said of Intel GPUs without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anychip.plugin.registry import Registry
from anychip_xpu.probe import SCORE, probe


def machine(root: Path, *devices: tuple[str, str], driver: bool = True, given: bool = True) -> Path:
    """A root folder with PCI devices of (vendor, class), as the kernel writes them, and their driver's nodes."""
    for number, (vendor, kind) in enumerate(devices):
        device = root / f"sys/bus/pci/devices/0000:{number:02}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "device").write_text("0x0bd5\n")
        (device / "class").write_text(f"{kind}\n")
        if driver and kind.startswith("0x03"):
            node = root / f"sys/class/drm/renderD{128 + number}"
            node.mkdir(parents=True)
            (node / "device").symlink_to(device)
            (root / "dev/dri").mkdir(parents=True, exist_ok=True)
            if given:
                (root / "dev/dri" / node.name).touch()
    return root


def torch_for(folder: Path, line: str) -> Path:
    folder.mkdir()
    (folder / "version.py").write_text(f"{line}\n")
    return folder


INTEL, OTHER = ("0x8086", "0x038000"), ("0x10de", "0x030200")
BRIDGE = ("0x8086", "0x060000")


def test_looking_for_a_gpu_loads_neither_torch_nor_triton():
    code = "import sys, anychip_xpu; anychip_xpu.probe(); anychip_xpu.probe_ipex()"
    code += "; print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("devices", "options", "reason", "remedy"),
    [
        ((), {}, "no Intel GPU on the PCI bus", "container"),
        ((OTHER, BRIDGE), {}, "no Intel GPU on the PCI bus", "container"),
        ((OTHER, INTEL), {"driver": False}, "no driver for the Intel GPU", "`i915` or `xe`"),
        ((OTHER, INTEL), {"given": False}, "/dev/dri/renderD129 is not there", "--device /dev/dri"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(tmp_path, devices, options, reason, remedy):
    found = probe(machine(tmp_path, *devices, **options))
    assert (found.score, found.devices) == (0, 0)
    assert reason in found.reason
    assert remedy in found.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_a_device_that_may_not_be_opened_needs_the_group(tmp_path):
    root = machine(tmp_path, INTEL)
    (root / "dev/dri/renderD128").chmod(0)
    found = probe(root)
    assert "/dev/dri/renderD128 may not be opened" in found.reason
    assert "`render`" in found.remedy


def test_the_build_of_torch_decides_last(tmp_path):
    root = machine(tmp_path, INTEL, BRIDGE, INTEL)
    other = probe(root, torch_for(tmp_path / "other", "xpu: Optional[str] = None"))
    assert (other.score, other.reason) == (0, "this build of PyTorch is not for Intel GPUs")
    assert "PyTorch's install page" in other.remedy
    found = probe(root, torch_for(tmp_path / "torch", "xpu: Optional[str] = '20250303'"))
    assert (found.score, found.reason, found.devices) == (SCORE, "", 2)


def test_both_platforms_are_found_through_the_entry_point():
    found = {one.spec.name: one.probe for one in Registry().platforms if one.plugin == "xpu"}
    assert found.keys() == {"xpu", "ipex"}
    assert found["ipex"].score <= 0
    assert found["xpu"].score or found["xpu"].remedy
