"""Products with weights of 4 bits as NVIDIA's matrix instructions take them, in the words of Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from tests.triton.gluon_words import interpreted

from anychip.ops.linear import linear as reference
from anychip.ops.linear import random_weight
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip.triton.linear import fragments as launches
from anychip.triton.linear.codes import CodedLinear
from anychip.triton.packing import Codes, pack_fragments, pack_pairs, prepare_codes
from anychip.triton.tuning import FragmentTile, Tuning
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme, schemes
from anychip.weights.weight import Weight

TIGHT = 1e-3
"""Of float16: numbers are rounded to it before the product where scales are applied to them."""
WAYS = {
    "sums": FragmentTile(64, 16, 4, 3, 2, sums=True),
    "numbers": FragmentTile(128, 16, 4, 4, 3, sums=False),
    "wide": FragmentTile(64, 16, 4, 3, 5, sums=False, wide=True),
}


@pytest.fixture(autouse=True, scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that the interpreter runs in the place of those that need a GPU."""
    programs = interpreted(tmp_path_factory.mktemp("programs"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("multiply_fragments", "unpack_fragments"):
            patch.setattr(launches, name, getattr(programs, name))
        yield


def quantized(scheme: Scheme, rows: int = 80, columns: int = 384) -> Weight:
    return quantize(random_weight(torch.Generator().manual_seed(5), rows, columns, "float32"), scheme)


def fragments_of(weight: Weight) -> Codes:
    codes = prepare_codes(weight, fragments=True).prepared
    assert isinstance(codes, Codes)
    assert codes.fragments
    return codes


def linear_by(way: str) -> CodedLinear:
    """On a chip of two processors, so that programs share tiles, and end within one."""
    return CodedLinear(Chip(2, tuning=Tuning(fragments=(WAYS[way],)), fragments=True))


@given(rows=st.integers(1, 4), inputs=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_a_thread_finds_what_its_instructions_take(rows: int, inputs: int, seed: int) -> None:
    codes = torch.randint(0, 16, (16 * rows, 128 * inputs), generator=torch.Generator().manual_seed(seed))
    packed = pack_fragments(codes)
    assert packed.shape == (2 * inputs, rows, 128)
    block, thread, word, nibble = torch.meshgrid(*(torch.arange(n) for n in (2 * inputs, 32, 4, 8)), indexing="ij")
    line, half, place = thread // 4 + 8 * (nibble % 2), nibble // 4, nibble % 4 // 2
    column = 64 * block + 16 * word + 2 * (thread % 4) + 8 * place + half
    for row in range(rows):
        found = packed[block, row, 4 * thread + word] >> (4 * nibble) & 15
        assert torch.equal(found.long(), codes[16 * row + line, column])


@pytest.mark.parametrize(("way", "tokens"), [("sums", 1), ("numbers", 19), ("wide", 19)])
@pytest.mark.parametrize("scheme", [*schemes("int4")], ids=str)
def test_products(scheme: Scheme, way: str, tokens: int) -> None:
    """Fewer tokens than a tile holds, and a block that is not full; neither are the tiles of rows."""
    weight = quantized(scheme)
    codes, generator = fragments_of(weight), torch.Generator().manual_seed(6)
    assert codes.rows == 80
    x, bias = (torch.randn(*shape, generator=generator).half() for shape in ((tokens, 384), (80,)))
    linear = linear_by(way)
    ours = linear.linear(x, codes, bias)
    wanted = reference(x.float(), weight, bias.float())
    assert normalized_error(ours, wanted) < TIGHT
    assert not linear.counters.on(x.device).any()  # so that another launch may count
    assert normalized_error(ours.roll(1, 1), wanted) > 0.1


@pytest.mark.parametrize("scheme", [*schemes("int4"), Scheme("int4", 4, 384, True, "none")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_codes_become_the_numbers_they_mean(scheme: Scheme, dtype: torch.dtype) -> None:
    weight = quantized(scheme)
    unpacked = linear_by("sums").dequantize(fragments_of(weight), dtype)
    assert torch.equal(unpacked, weight.dequantize(dtype))


def test_more_tokens_than_codes_are_read_for_and_float32() -> None:
    """Both are products of the numbers."""
    weight = quantized(Scheme("int4", 4, 32, True, "none"))
    x = torch.randn(130, 384, generator=torch.Generator().manual_seed(6))
    for tokens, dtype, limit in ((130, torch.float16, TIGHT), (3, torch.float32, 1e-6)):
        ours = linear_by("sums").linear(x[:tokens].to(dtype), fragments_of(weight), None)
        assert normalized_error(ours, reference(x[:tokens].to(dtype).float(), weight, None)) < limit


def test_other_words_are_noticed() -> None:
    """Negative control: rows g and g + 8 in each other's place, and the scales of other groups."""
    weight = quantized(Scheme("int4", 4, 32, False, "none"))
    codes, x = fragments_of(weight), torch.randn(4, 384, generator=torch.Generator().manual_seed(6)).half()
    swapped = (codes.values & 0x0F0F0F0F) << 4 | (codes.values >> 4) & 0x0F0F0F0F
    wanted = reference(x.float(), weight, None)
    for wrong in (replace(codes, values=swapped), replace(codes, scale=codes.scale.roll(1, 0))):
        assert normalized_error(linear_by("sums").linear(x, wrong, None), wanted) > 0.1


@pytest.mark.parametrize(
    ("rows", "columns", "group"), [(72, 384, 32), (80, 160, 32), (80, 192, 64), (80, 384, 192)], ids=str
)
def test_a_matrix_without_whole_blocks_is_packed_as_for_other_chips(rows: int, columns: int, group: int) -> None:
    weight = quantized(Scheme("int4", 4, group, True, "none"), rows, columns)
    codes = prepare_codes(weight, fragments=True).prepared
    assert isinstance(codes, Codes)
    assert codes.packed
    assert not codes.fragments
    assert (codes.rows, codes.columns) == (rows, columns)


@pytest.mark.parametrize(("factor", "offset", "held"), [(1.0, 0.0, True), (1e-6, 0.0, False), (1.0, 90.0, False)])
def test_what_float16_does_not_hold_is_kept_in_float32(factor: float, offset: float, held: bool) -> None:
    weight = quantized(Scheme("int4", 4, 32, True, "none"))
    assert weight.quantization is not None
    scale, zero_point = weight.quantization.scale.float() * factor, weight.quantization.zero_point
    assert zero_point is not None
    changed = replace(weight.quantization, scale=scale, zero_point=zero_point.float() + offset)
    codes = prepare_codes(replace(weight, quantization=changed), fragments=True).prepared
    assert isinstance(codes, Codes)
    assert codes.fragments == held


def test_pairs_hold_the_scales_of_two_rows() -> None:
    scales = torch.arange(32 * 4).view(32, 4).half()
    pairs = pack_pairs(scales, 32)
    assert pairs.shape == (2, 2, 8, 2)
    low, high = pairs.to(torch.int16).view(torch.float16), (pairs >> 16).to(torch.int16).view(torch.float16)
    assert low[1, 1, 3, 1] == scales[19, 3]
    assert high[1, 1, 3, 1] == scales[27, 3]
