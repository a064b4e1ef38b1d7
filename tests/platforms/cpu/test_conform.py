"""The kit's checks of attention pass for each variant of the kernels and without any; a long script runs them all."""

import os
import subprocess
import sys

import pytest
from tests.platforms.cpu.native import VARIANTS, native_library


@pytest.mark.parametrize("variant", [*VARIANTS[1:], "none"])  # the first one is what the kit's own test runs
def test_level_2(variant):
    if variant != "none":
        native_library(variant)
    command = [sys.executable, "-m", "anychip", "conform", "cpu", "--level", "2"]
    settings = {**os.environ, "ANYCHIP_NATIVE_KERNELS": variant}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
