"""What can be said of AMD GPUs without one: the driver's files are written here as it writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anychip_rocm.names import SOLD_AS, name_of
from anychip_rocm.probe import DEVICE, NODES, SCORE, architectures, probe

HOST = {"cpu_cores_count": 96, "simd_count": 0, "gfx_target_version": 0}
MI300X = {"cpu_cores_count": 0, "simd_count": 1216, "gfx_target_version": 90402, "lds_size_in_kb": 64}


def machine(root: Path, *nodes: dict[str, int]) -> Path:
    """A machine with these processors."""
    (root / DEVICE).parent.mkdir(parents=True, exist_ok=True)
    (root / DEVICE).touch()
    for number, node in enumerate(nodes):
        folder = root / NODES / str(number)
        folder.mkdir(parents=True)
        (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in node.items()))
    return root


def torch_for(folder: Path, hip: str) -> Path:
    """The folder of a PyTorch built so."""
    folder.mkdir()
    (folder / "version.py").write_text(f"cuda: Optional[str] = None\nhip: Optional[str] = {hip}\n")
    return folder


def test_looking_for_a_gpu_loads_neither_torch_nor_triton() -> None:
    code = "import sys, anychip_rocm; anychip_rocm.probe(); print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (110000, "gfx1100"), (120001, "gfx1201")],
)
def test_an_architecture_has_the_name_that_compilers_use(version: int, name: str) -> None:
    assert name_of(version) == name
    assert name in SOLD_AS


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    found = probe(tmp_path)
    assert (found.score, found.devices, found.reason) == (0, 0, "no AMD driver with compute support is loaded")
    assert "/dev/kfd" in found.remedy
    found = probe(machine(tmp_path, HOST))
    assert (found.score, found.reason) == (0, "the AMD driver shows no GPU")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_a_user_without_the_right_to_open_the_device_is_told_which_groups(tmp_path: Path) -> None:
    (machine(tmp_path, HOST, MI300X) / DEVICE).chmod(0)
    assert "render" in probe(tmp_path).remedy


def test_a_gpu_that_is_not_known_is_named(tmp_path: Path) -> None:
    found = probe(machine(tmp_path, HOST, {"gfx_target_version": 100300}))
    assert (found.score, found.reason) == (0, "the GPU is a gfx1030, which is not supported")
    assert "gfx942 (Instinct MI300A, MI300X" in found.remedy


def test_the_build_of_torch_has_to_be_for_such_gpus(tmp_path: Path) -> None:
    root = machine(tmp_path, HOST, MI300X, MI300X)
    other, right = torch_for(tmp_path / "other", "None"), torch_for(tmp_path / "right", "'6.4.43482'")
    assert probe(root, other).reason == "this build of PyTorch is not for AMD GPUs"
    assert "ROCm" in probe(root, other).remedy
    found = probe(root, right)
    assert (found.score, found.reason, found.devices) == (SCORE, "", 2)


def test_gpus_are_counted_in_the_drivers_order_and_hidden_nodes_are_none(tmp_path: Path) -> None:
    """The host's own node comes first; of ten nodes the tenth comes last."""
    root = machine(tmp_path, HOST, *({"gfx_target_version": 90010} for _ in range(9)), MI300X)
    (root / NODES / "1" / "properties").unlink()
    assert architectures(root) == ["gfx90a"] * 8 + ["gfx942"]
