"""What can be said of NVIDIA GPUs without one."""

import subprocess
import sys

import pytest

from anychip.plugin.registry import Registry
from anychip_cuda.probe import LIBRARY, SCORE, built_for_cuda, probe


def test_looking_for_a_gpu_loads_neither_torch_nor_triton():
    code = "import sys, anychip_cuda; anychip_cuda.probe(); print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_probe_gives_a_score_or_a_reason():
    found = probe()
    assert found == probe()
    assert (found.score == SCORE) == (found.reason == "")
    assert found.score or any(word in found.reason for word in ("driver", "GPU", "PyTorch"))
    assert LIBRARY.endswith(".so.1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda: Optional[str] = '13.0'", True),
        ("cuda = None", False),
        ("cuda: Optional[str] = None", False),
        ("", False),
    ],
)
def test_the_build_of_torch_is_read_from_its_version_file(tmp_path, line, expected):
    assert not built_for_cuda(tmp_path)
    (tmp_path / "version.py").write_text(f"debug = False\n{line}\nhip: Optional[str] = '6.4'\n")
    assert built_for_cuda(tmp_path) == expected


def test_the_platform_is_found_through_its_entry_point():
    assert [found.spec.extra for found in Registry().platforms if found.spec.name == "cuda"] == ["anychip[cuda]"]
