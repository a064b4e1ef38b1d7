"""What is asked of Triton before anything is launched."""

from __future__ import annotations

import subprocess
import sys

from tests.triton.mode import require_triton

require_triton(interpreted=False)

OLDER = """
import sys

import triton

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("triton.experimental.gluon"):
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
triton.__version__ = "3.5.1"

from anychip.triton.keys import program_modules, settle_keys

settle_keys()
print(len(program_modules()))
"""


def test_a_triton_without_gluon_reads_all_programs_but_those_in_it() -> None:
    done = subprocess.run([sys.executable, "-c", OLDER], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
