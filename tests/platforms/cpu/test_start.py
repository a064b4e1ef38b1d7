"""A start brings in what serving needs, and no compiler of torch's: that takes as long as all the rest."""

import subprocess
import sys

PROGRAM = """
import sys
from anychip.testing.subject import Subject

with Subject("cpu") as subject:
    subject.llm.generate([[1, 2, 3]])
print(*(name for name in ("torch._dynamo", "torch._inductor", "sympy", "transformers") if name in sys.modules))
"""


def test_a_start_imports_no_compiler():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
