"""Every program compiles for each target without a device, with no register spilled where that is promised."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=False)

from tests.triton.fake_device import SHARED, TARGETS, Compiled, compiled, programs, use
from tests.triton.launches import (
    CODED,
    HEAD_SIZES,
    add,
    attend,
    attend_float32,
    chip,
    choose,
    decode_weights,
    decode_with,
    edit,
    matrix_instructions,
    mix,
    multiply,
)

from anychip_rocm.chips import CHIPS

TESTED = [target for target in TARGETS if target not in {"sm_86", "sm_89"}]
"""`sm_120` has the tiles of those two, and as little memory. benchmarks/triton_targets.py compiles for them too."""
ATTENTION = [
    (target, dim)
    for target in TESTED
    for dim in HEAD_SIZES
    if dim in (128, 256) or target in {"sm_80", "sm_90", "sm_100", "gfx942"}
]
ATTENTION.append(("sm_86", 128))  # which copies no pages
"""The other head sizes of other targets take minutes: benchmarks/triton_targets.py compiles them all."""
SPILLS = {("sm_90", "attend_grouped")}
"""Ten values around the loop for heads of 256."""
ATTENDING = ("attend_queries", "attend_pages", "attend_grouped")
TRIVIAL = 16
"""Bytes of stack that are one value kept across a loop, written and read once: of NVIDIA's compiler."""
MATRIX = {
    **dict.fromkeys(("sm_80", "sm_86", "sm_120"), "mma.sync"),
    "sm_90": "wgmma",
    "sm_100": "tcgen05",
    **{name: "v_mfma" if found.tuning.lanes == 64 else "v_wmma" for name, found in CHIPS.items()},
}
FLOAT8 = {"gfx942": "v_mfma_f32_32x32x16_fp8_fp8", "gfx950": "v_mfma_f32_32x32x64_f8f6f4"}
FLOAT8 |= {"gfx1201": "v_wmma_f32_16x16x16_fp8_fp8"}
BYTES = CODED[-1]
EXPERTS = "multiply_experts", "gate_tiles", "multiply_tiles", "gate_blocks", "multiply_blocks"
COPYING = "sm_90", "sm_100"
"""Targets that copy tiles of matrices by themselves, so that all but the first of those are theirs."""


def problems(target: str) -> list[Compiled]:
    """What spills where it should not, or does not fit."""
    allowed = 0 if target in CHIPS else TRIVIAL
    spilling = [found for found in compiled() if found.spilled > allowed and (target, found.name) not in SPILLS]
    return spilling + [found for found in compiled() if found.shared > SHARED[target]]


@pytest.mark.parametrize(("target", "dim"), ATTENTION)
def test_attention_compiles(target: str, dim: int) -> None:
    use(target)
    attend(target, dim)
    assert problems(target) == []
    assert all(MATRIX[target] in found.text for found in compiled() if found.name in ATTENDING)


@pytest.mark.parametrize(
    ("target", "cache_type"),
    [
        *((target, "int8") for target in ("sm_80", "sm_90", "sm_120", "gfx942", "gfx1100")),
        *((target, "fp8") for target in ("sm_90", "sm_100", "gfx1201")),
    ],
)
def test_attention_over_codes_compiles(target: str, cache_type: str) -> None:
    use(target)
    attend(target, 128, cache_type)
    assert problems(target) == []


@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx1100"])
def test_attention_in_float32_compiles(target: str) -> None:
    use(target)
    attend_float32(target, 128)
    assert problems(target) == []


@pytest.mark.parametrize("target", TESTED)
def test_rows_compile(target: str) -> None:
    use(target)
    multiply(target)
    choose(target)
    edit(target)
    add(target)
    assert problems(target) == []
    thin = [MATRIX[target] in found.text for found in compiled() if found.name == "multiply_thin"]
    assert thin
    assert all(thin) or target not in CHIPS


@pytest.mark.parametrize("target", TESTED)
def test_experts_compile(target: str) -> None:
    use(target)
    mix(target)
    assert problems(target) == []
    products = [found for found in compiled() if found.name in EXPERTS]
    assert {found.name for found in products} == set(EXPERTS[1:] if target in COPYING else EXPERTS[:1])
    assert all(MATRIX[target] in found.text for found in products)


@pytest.mark.parametrize("target", TESTED)
def test_quantized_weights_compile(target: str) -> None:
    use(target)
    decode_weights(target)
    assert problems(target) == []


@pytest.mark.parametrize("target", FLOAT8)
def test_8_bit_floats_are_multiplied_as_they_are(target: str) -> None:
    use(target)
    decode_with(chip(target), BYTES)
    products = [matrix_instructions(found.text) for found in compiled() if found.name == "multiply_rounded"]
    assert products
    assert all(product == [FLOAT8[target]] for product in products)


def test_8_bit_floats_of_the_wrong_dialect_would_be_widened() -> None:
    """Negative control: what a chip's dialect is for."""
    use("gfx942")
    decode_with(replace(chip("gfx942"), float8=torch.float8_e4m3fn), BYTES)
    products = [found for found in compiled() if found.name == "multiply_rounded"]
    assert products
    assert not any("fp8" in each for found in products for each in matrix_instructions(found.text))


def test_nothing_is_left_out() -> None:
    """Every entry program was compiled above."""
    use("sm_90")
    attend("sm_90", 64)
    multiply("sm_90")
    mix("sm_90")
    decode_weights("sm_90")
    choose("sm_90")
    edit("sm_90")
    add("sm_90")
    launched = {found.name for found in compiled()}
    use("sm_80")  # a chip that copies no tiles
    mix("sm_80")
    launched |= {found.name for found in compiled()}
    entries = {name for name, program in programs().items() if "OVERLAP" in program.arg_names and name not in STEPS}
    assert launched == entries


STEPS = ("take_turn", "let_next_start", "wait_for_previous", "_multiply", "_multiply_lines")
