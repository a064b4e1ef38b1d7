"""Whole steps of the Intel platform's runner, launches included, where neither a GPU nor any number is there."""

import pytest
import torch

pytest.importorskip("triton.backends.intel", reason="triton-xpu is not installed; ci/lane_xpu.sh runs these tests")

from tests.platforms.xpu.fake_gpu import GPU, TARGETS, compiled, use
from tests.platforms.xpu.steps import started, steps
from torch._subclasses.fake_tensor import FakeTensorMode

LAUNCHED = {"attend_contexts", "attend_queries", "join_pieces", "place_tokens", "prepare_heads", "multiply_vector"}


@pytest.mark.parametrize("name", TARGETS)
def test_a_model_loads_computes_and_samples_on_the_device(name, tmp_path):
    platform = use(name, tmp_path)
    with FakeTensorMode(allow_non_fake_inputs=True):
        runner = started(platform, {"head_dim": 64})
        assert {parameter.device for parameter in runner.model.parameters()} == {GPU}
        assert {parameter.dtype for parameter in runner.model.parameters()} == {torch.bfloat16}
        results = steps(runner)
    assert [list(result.rows) for result in results] == [[1, 2, 0], [0, 1, 2], [0]]
    assert [result.token_ids.shape for result in results] == [(3,), (3,), (1,)]
    assert not any(result.errors for result in results)
    assert [result.logprobs is None for result in results] == [False, False, True]
    launched = {program for program, _ in compiled()}
    assert launched >= LAUNCHED
    assert all(kernel.asm["spv"][:4] == b"\x03\x02\x23\x07" for _, kernel in compiled())
    assert all(kernel.metadata.shared <= TARGETS[name].shared for _, kernel in compiled())
    matrix = {program for program, kernel in compiled() if "matrix_mad" in kernel.asm["llir"]}
    assert ("attend_queries" in matrix) == (name == "pvc")
