"""What can be said of NVIDIA GPUs without one."""

import subprocess
import sys

from anychip.plugin.registry import Registry
from anychip_cuda.probe import LIBRARY, SCORE, probe


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


def test_the_platform_is_found_through_its_entry_point():
    assert [found.plugin for found in Registry().platforms if found.spec.name == "cuda"] == ["cuda"]
