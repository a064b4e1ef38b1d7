"""Triton decides when it is imported whether to interpret programs or to compile them; a test needs one of the two."""

from __future__ import annotations

import pytest

WITHOUT = "Triton is not installed; ci/lane_triton.sh runs these tests"


def require_triton(interpreted: bool) -> None:
    """Skip the calling module unless Triton is there, in the right mode."""
    triton = pytest.importorskip("triton", reason=WITHOUT)
    if triton.knobs.runtime.interpret != interpreted:
        pytest.skip("for TRITON_INTERPRET=1" if interpreted else "not for TRITON_INTERPRET=1", allow_module_level=True)
