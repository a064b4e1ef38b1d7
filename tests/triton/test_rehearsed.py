"""Whole steps without their GPU: every launch that serves compiles, and what was compiled ahead is found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.triton.mode import require_triton

require_triton(interpreted=False)

import triton
from tests.triton.fake_device import SHARED, compiled, use
from tests.triton.rehearsed import BERT, EXPERTS, LLAMA, QWEN, work

from anychip.errors import UserError
from anychip.triton.ahead.rehearsal import Rehearsal, rehearse
from anychip.triton.ahead.work import Work
from anychip_cuda.cudnn import Cudnn
from anychip_cuda.flash import PACKAGES, Flash

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
    return list(rehearse(Rehearsal(work.platform), work.config, work.source))


@pytest.mark.parametrize(
    ("target", "model", "options"), SERVED, ids=lambda value: value if isinstance(value, str) else None
)
def test_whole_steps_compile_and_fit(target: str, model: dict[str, Any], options: dict[str, Any]) -> None:
    use(target)
    words = run(work(target, model, **options))
    assert words[:2] == ["weights", "start"]
    assert "8000 tokens in 1 rows" in words
    found = list(compiled())
    names = {each.name for each in found}
    assert {"attend_contexts", "draw_tokens"} <= names
    copies = target in {"sm_90", "sm_100"} and "kv_cache_dtype" not in options
    assert ({"attend_pages"} if copies else {"attend_queries"}) <= names
    assert ("attend_grouped" in names) == (copies and target == "sm_90")
    assert [each.name for each in found if each.shared > SHARED[target]] == []


def test_long_prompts_compile_what_a_library_takes() -> None:
    """One that takes keys beside the cache has them written there; where rows differ in length they are read back."""
    flash = Flash(PACKAGES[0], "0.0.3", ("bfloat16",), 256)
    programs = {}
    for library in (flash, Cudnn()):
        use("sm_90")
        run(work("sm_90", QWEN, library))
        programs[library.name] = sorted(each.name for each in compiled())
    assert programs[flash.name].count("prepare_heads") == programs[Cudnn().name].count("prepare_heads") + 1
    assert {"place_keys", "read_heads"} <= {*programs[flash.name]}


def test_encoders_run_whole() -> None:
    use("sm_90")
    assert run(work("sm_90", BERT, task="embed", dtype="bfloat16")) == ["weights", "start"]
    assert {"attend_ragged", "center_and_normalize", "multiply_vector"} <= {each.name for each in compiled()}


def test_a_launch_that_does_not_fit_fails() -> None:
    """Negative control: tiles too large for the device's shared memory."""
    use("sm_90")
    given = work("sm_90", QWEN)
    chip = given.platform.chip
    tuning = replace(chip.tuning, copied_small=replace(chip.tuning.copied_small, stages=9))
    with pytest.raises(triton.OutOfResources):
        run(replace(given, platform=replace(given.platform, chip=replace(chip, tuning=tuning))))


def test_keys_do_not_depend_on_what_is_launched_first() -> None:
    keys = []
    for first in ("greedy.choose_peak", "draw.draw_tokens", "queries.attend_queries", "contexts.attend_contexts"):
        module, name = first.split(".")
        code = f"""
from anychip.triton.keys import settle_keys
from anychip.triton.programs import {module}
settle_keys() if {len(keys) < 3} else None
{module}.{name}.cache_key
from anychip.triton.programs import contexts, draw, queries
print(*(each.cache_key for each in (draw.draw_tokens, contexts.attend_contexts, queries.attend_queries)))
"""
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        keys.append(run.stdout)
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0]  # negative control: without settling they do


def test_what_a_start_would_refuse_is_refused() -> None:
    use("sm_90")
    with pytest.raises(UserError):
        run(work("sm_90", QWEN, max_model_len=10**6))
