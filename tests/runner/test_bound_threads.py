"""OpenMP that binds its threads leaves us all of them."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
from anychip.config import make_config
from anychip.reference.platform import ReferencePlatform
ReferencePlatform("cpu").runner(make_config({}))
print(torch.get_num_threads())
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor")
def test_bound_openmp_threads_are_all_used():
    settings = {**os.environ, "OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 2
