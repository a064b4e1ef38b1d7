"""Whole steps without their GPU: every launch that serves compiles, and what was compiled ahead is found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.triton.mode import require_triton

require_triton(interpreted=False)

import triton
from tests.triton.fake_device import SHARED, compiled, use
from tests.triton.rehearsed import BERT, EXPERTS, LLAMA, QWEN, work

from anychip.errors import UserError
from anychip.triton.ahead import Helpers, Work
from anychip.triton.rehearsal import Rehearsal, rehearse

SERVED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sm_90", LLAMA, {}),
    ("sm_90", LLAMA, {"quantization": "fp8", "kv_cache_dtype": "fp8"}),
    ("sm_90", LLAMA, {"quantization": "int4", "kv_cache_dtype": "int8"}),
    ("sm_90", QWEN, {"quantization": "int8", "dtype": "float16"}),
    ("sm_90", EXPERTS, {}),
    ("sm_90", EXPERTS, {"quantization": "fp8"}),
    ("sm_80", QWEN, {}),
    ("sm_100", LLAMA, {}),
    ("gfx942", LLAMA, {}),
]


def run(work: Work) -> list[str]:
    rehearsal = Rehearsal(work.chip, work.capabilities, work.kernels_of)
    return list(rehearse(rehearsal, work.config, work.source))


@pytest.mark.parametrize(
    ("target", "model", "options"), SERVED, ids=lambda value: value if isinstance(value, str) else None
)
def test_whole_steps_compile_and_fit(target: str, model: dict[str, Any], options: dict[str, Any]) -> None:
    use(target)
    words = run(work(target, model, **options))
    assert words[:2] == ["weights", "start"]
    assert "8000 tokens in 1 rows" in words
    found = list(compiled())
    assert {"attend_contexts", "attend_queries", "draw_tokens"} <= {each.name for each in found}
    assert [each.name for each in found if each.shared > SHARED[target]] == []


def test_encoders_run_whole() -> None:
    use("sm_90")
    assert run(work("sm_90", BERT, task="embed", dtype="bfloat16")) == ["weights", "start"]
    assert {"attend_ragged", "center_and_normalize", "multiply_vector"} <= {each.name for each in compiled()}


def test_a_launch_that_does_not_fit_fails() -> None:
    """Negative control: tiles too large for the device's shared memory."""
    use("sm_90")
    given = work("sm_90", QWEN)
    tuning = replace(given.chip.tuning, query_large=replace(given.chip.tuning.query_large, keys=512))
    with pytest.raises(triton.OutOfResources):
        run(replace(given, chip=replace(given.chip, tuning=tuning)))


def test_what_helpers_compiled_is_found_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    small = QWEN | {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    given = work("sm_90", small, max_num_seqs=8, max_model_len=512, max_num_batched_tokens=512)
    helpers = Helpers(given, 2)
    try:
        assert helpers.wait(300) == 2
        deadline = time.monotonic() + 300
        while any(process.poll() is None for process in helpers._processes) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [process.returncode for process in helpers._processes] == [0, 0]
    finally:
        helpers.close()
    assert given.marker.exists()
    before = {*os.listdir(tmp_path)}
    assert len(before) > 20
    use("sm_90")
    run(given)
    assert {*os.listdir(tmp_path)} == before
    other = Rehearsal(replace(given.chip, overlap=False), given.capabilities, given.kernels_of)
    next(word for word in rehearse(other, given.config, given.source) if word == "start")
    assert {*os.listdir(tmp_path)} > before  # negative control: another chip's kernels are not there


def test_keys_do_not_depend_on_what_is_launched_first() -> None:
    keys = []
    for first in ("greedy.choose_peak", "sample.draw_tokens", "queries.attend_queries", "contexts.attend_contexts"):
        module, name = first.split(".")
        code = f"""
from anychip.triton.keys import settle_keys
from anychip.triton.programs import {module}
settle_keys() if {len(keys) < 3} else None
{module}.{name}.cache_key
from anychip.triton.programs import contexts, queries, sample
print(*(each.cache_key for each in (sample.draw_tokens, contexts.attend_contexts, queries.attend_queries)))
"""
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        keys.append(run.stdout)
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0]  # negative control: without settling they do


def test_helpers_that_fail_hold_nobody_up() -> None:
    helpers = Helpers(work("sm_90", QWEN | {"num_hidden_layers": "many"}), 1)
    try:
        assert helpers.wait(120) == 0
    finally:
        helpers.close()


def test_what_a_start_would_refuse_is_refused() -> None:
    use("sm_90")
    with pytest.raises(UserError):
        run(work("sm_90", QWEN, max_model_len=10**6))
