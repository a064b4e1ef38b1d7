"""Products with quantized weights in Triton's interpreter: each format, as few tokens and as many."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.ops.linear import linear as reference
from anychip.ops.linear import random_weight
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip.triton.linear.codes import CodedLinear
from anychip.triton.linear.linear import Linears
from anychip.triton.packing import Codes, pack, prepare_codes, without_negative_zero
from anychip.triton.rows import Rows
from anychip.weights.quantize import fits, quantize
from anychip.weights.scheme import Scheme, schemes
from anychip.weights.weight import Weight

SCHEMES = [
    scheme
    for name in ("int4", "int8", "fp8")
    for scheme in schemes(name)
    if scheme.group_size != 64 or scheme.zero_points
]
TIGHT = 2e-6
LIMITS = {"int8": 2e-2, "fp8": 6e-2}
"""Of activations in 8 bits."""
LINEAR = CodedLinear(Chip(6))
WAYS = {"pointers": Chip(6, library_codes=False), "tiles copied": Chip(6, descriptors=True)}


def case(
    scheme: Scheme, tokens: int, columns: int = 160, linear: CodedLinear = LINEAR
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ours and the reference's product, and the codes' mean."""
    generator = torch.Generator().manual_seed(5)
    weight = random_weight(generator, 48, columns, "float32")
    assert fits(weight, scheme)
    weight = quantize(weight, scheme)
    codes = prepare_codes(weight).prepared
    assert isinstance(codes, Codes)
    x, bias = torch.randn(tokens, columns, generator=generator), torch.randn(48, generator=generator)
    assert torch.equal(LINEAR.dequantize(codes, torch.float32), weight.dequantize(torch.float32))
    return linear.linear(x, codes, bias), reference(x, weight, bias), codes.values


@given(rows=st.integers(1, 40), words=st.integers(1, 50), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_packing_loses_nothing(rows: int, words: int, seed: int) -> None:
    """Nibbles q and q + 4 of a word are two neighbours among 32 inputs; those that are not there are 0."""
    codes = torch.randint(0, 16, (rows, 8 * words), generator=torch.Generator().manual_seed(seed))
    packed = pack(codes)
    assert packed.shape == (-(-words // 16), rows, 16)
    nibbles = torch.stack([packed >> shift & 15 for shift in range(0, 32, 4)], -1)  # [C, N, 16, 8]
    planes = nibbles.unflatten(-1, (2, 4)).permute(1, 0, 4, 2, 3).reshape(rows, -1)
    assert torch.equal(planes[:, : codes.shape[1]].long(), codes)
    assert not planes[:, codes.shape[1] :].any()


@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_few_tokens(scheme: Scheme, tokens: int) -> None:
    ours, wanted, _ = case(scheme, tokens, 256 if scheme.group_size > 32 else 160)
    rounded = tokens > 1 and scheme.activation in ("token", "group") and scheme.group_size == 0
    assert normalized_error(ours, wanted) < (LIMITS[scheme.format] if rounded else TIGHT)


@pytest.mark.parametrize("columns", [160, 168, 384])
def test_a_scale_may_serve_a_whole_row(columns: int) -> None:
    scheme = Scheme("int4", 4, columns, True, "none")
    ours, wanted, _ = case(scheme, 3, columns)
    assert normalized_error(ours, wanted) < TIGHT


def test_a_weight_in_the_other_dialect_of_8_bit_floats_means_the_same() -> None:
    """Its codes are half as large, with a scale twice as large. Triton's interpreter does not know them."""
    (scheme,) = (scheme for scheme in SCHEMES if scheme == Scheme("fp8", 8, 0, False, "token"))
    weight = quantize(random_weight(torch.Generator().manual_seed(5), 48, 160, "float32"), scheme)
    codes = prepare_codes(weight, torch.float8_e4m3fnuz).prepared
    assert isinstance(codes, Codes)
    assert codes.values.dtype == torch.float8_e4m3fnuz
    assert torch.equal(LINEAR.dequantize(codes, torch.float32), weight.dequantize(torch.float32))


def test_all_codes_keep_their_meaning_in_the_other_dialect() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert torch.equal(without_negative_zero(codes).float().nan_to_num(7.0) * 2, codes.float().nan_to_num(14.0))
    assert codes.isnan().sum() == without_negative_zero(codes).isnan().sum() == 2


def test_many_tokens_are_rounded_to_integers_too() -> None:
    ours, wanted, _ = case(Scheme("int8", 8, 0, False, "token"), 72)
    assert TIGHT < normalized_error(ours, wanted) < LIMITS["int8"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "activation"), [("int8", "token"), ("int8", "group"), ("fp8", "token")])
@pytest.mark.parametrize("tokens", [100, 150])
def test_many_tokens_without_a_library(name: str, activation: str, way: str, tokens: int) -> None:
    """Two blocks of tokens, the second one not full, or one that is long enough to share its inputs."""
    chip = replace(WAYS[way], library_codes=False)
    ours, wanted, _ = case(Scheme(name, 8, 0, False, activation), tokens, linear=CodedLinear(chip))
    assert TIGHT < normalized_error(ours, wanted) < LIMITS[name]
    assert normalized_error(ours.roll(1, 0), wanted) > 0.1


GROUPS = Scheme("int8", 8, 0, False, "group")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokens", [9, 70, 300])
def test_an_outlier_coarsens_its_own_group_of_inputs_alone(tokens: int, way: str) -> None:
    """The 200th input lies in the second of three groups; weights of that group are 0 or not. Rows fill no tile."""
    generator = torch.Generator().manual_seed(3)
    matrix, x = torch.randn(40, 320, generator=generator) / 16, torch.randn(tokens, 320, generator=generator)
    bias = torch.randn(40, generator=generator)
    x[:, 200] = 3e3
    linear, found = CodedLinear(WAYS[way]), []
    for start, stop in ((200, 201), (128, 256)):
        values = matrix.clone()
        values[:, start:stop] = 0
        weight = quantize(Weight(values, (40, 320)), GROUPS)
        prepared = prepare_codes(weight).prepared
        assert isinstance(prepared, Codes)
        wanted = reference(x, weight, bias)
        for codes in (prepared, replace(prepared, activation="token")):
            found.append(normalized_error(linear.linear(x, codes, bias), wanted))
    assert TIGHT < found[2] < LIMITS["int8"]
    assert all(error > 5 * LIMITS["int8"] for error in (found[0], found[1], found[3]))


@pytest.mark.parametrize("tokens", [1, 20, 70, 300])
def test_inputs_are_left_alone_where_a_weight_says_so(tokens: int) -> None:
    ours, wanted, _ = case(Scheme("int8", 8, 0, False, "none"), tokens)
    assert normalized_error(ours, wanted) < TIGHT


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokens", [2, 9, 70, 300])
def test_numbers_of_16_bits_are_two_codes_where_a_weight_says_so(tokens: int, way: str) -> None:
    """No more is lost than float16 loses, also of what lies beside an outlier."""
    generator = torch.Generator().manual_seed(4)
    x, bias = torch.randn(tokens, 320, generator=generator), torch.randn(40, generator=generator)
    x[:, 7] = 100.0
    matrix = torch.randn(40, 320, generator=generator) / 16
    matrix[:, 7] = 0
    weight = quantize(Weight(matrix, (40, 320)), Scheme("int8", 8, 0, False, "none"))
    prepared = prepare_codes(weight).prepared
    assert isinstance(prepared, Codes)
    linear, wanted = CodedLinear(WAYS[way]), reference(x, weight, bias)
    ours = linear.linear(x.half(), prepared, bias.half())
    assert normalized_error(ours.float(), wanted) < 1e-3
    coarse = linear.linear(x.half(), replace(prepared, activation="token"), bias.half())
    assert normalized_error(coarse.float(), wanted) > 1e-2


@pytest.mark.parametrize("tokens", [5, 66])
@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_inputs_are_rounded_while_they_are_normalized_and_gated(name: str, tokens: int) -> None:
    """As they are by themselves: the sums differ by what float32 loses, so that few codes are others."""
    linears, generator = linears_without_library(), torch.Generator().manual_seed(5)
    x, residual = (torch.randn(tokens, 160, generator=generator) for _ in range(2))
    norm, bias = torch.rand(160, generator=generator), torch.randn(256, generator=generator)
    gate_up, down = coded(name, generator, 256, 160), coded(name, generator, 64, 128)
    for before in (None, residual):
        normed, total = (linears.rows.rms_norm(x, norm, 1e-5), x) if before is None else (
            linears.rows.add_rms_norm(x, before, norm, 1e-5)
        )  # fmt: skip
        ours = linears.norm_linear(x, before, norm, 1e-5, gate_up, bias)
        assert torch.equal(ours[1], total)
        assert normalized_error(ours[0], linears.linear(normed, gate_up, bias)) < LIMITS[name] / 10
        assert TIGHT < normalized_error(ours[0], unrounded(normed, gate_up, bias)) < LIMITS[name]
        assert normalized_error(ours[0].roll(1, 0), unrounded(normed, gate_up, bias)) > 0.1
    inner = linears.rows.silu_mul(linears.linear(x, gate_up, None))
    ours = linears.gated_mlp(x, gate_up, down, "silu")
    assert normalized_error(ours, linears.linear(inner, down, None)) < LIMITS[name] / 10
    assert TIGHT < normalized_error(ours, unrounded(inner, down, None)) < 2 * LIMITS[name]


def linears_without_library() -> Linears:
    chip = Chip(6, library_codes=False)
    return Linears(chip, Rows(chip))


def unrounded(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """The product of plain inputs."""
    assert isinstance(weight.prepared, Codes)
    return torch.nn.functional.linear(x, LINEAR.dequantize(weight.prepared, x.dtype), bias)


def coded(name: str, generator: torch.Generator, rows: int, columns: int) -> Weight:
    return prepare_codes(
        quantize(random_weight(generator, rows, columns, "float32"), Scheme(name, 8, 0, False, "token"))
    )


def test_a_word_with_its_codes_in_another_order_is_noticed() -> None:
    """Negative control."""
    codes = torch.arange(128, dtype=torch.uint8).remainder(16).view(1, 128)
    generator = torch.Generator().manual_seed(5)
    weight = quantize(random_weight(generator, 1, 128, "float32"), SCHEMES[0])
    prepared = prepare_codes(weight).prepared
    assert isinstance(prepared, Codes)
    good, wrong = pack(codes), pack(codes.flip(-1))
    products = [
        LINEAR.linear(torch.randn(1, 128, generator=torch.Generator().manual_seed(1)), _with(prepared, words), None)
        for words in (good, wrong)
    ]
    assert normalized_error(*products) > 0.1


def _with(codes: Codes, words: torch.Tensor) -> Codes:
    return Codes(words, codes.scale, codes.zero_point, codes.group_size, codes.columns)


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("tokens", [3, 70])
def test_what_is_no_number_stays_none_when_inputs_are_rounded(name: str, tokens: int) -> None:
    generator = torch.Generator().manual_seed(8)
    weight = quantize(random_weight(generator, 48, 160, "float32"), Scheme(name, 8, 0, False, "token"))
    prepared = prepare_codes(weight).prepared
    assert isinstance(prepared, Codes)
    x = torch.randn(tokens, 160, generator=generator)
    linear = CodedLinear(Chip(6, library_codes=False))
    right = linear.linear(x, prepared, None)
    x[1, 5], x[2, 6] = torch.nan, torch.inf
    y = linear.linear(x, prepared, None)
    assert not y[1:3].isfinite().any()
    others = [0, *range(3, tokens)]
    assert torch.equal(y[others], right[others])
