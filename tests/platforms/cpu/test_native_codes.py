"""Products of quantized weights in each variant that this processor runs, against the numbers that the codes mean."""

from dataclasses import replace

import pytest
import torch
from tests.platforms.cpu.native import VARIANTS, native_library
from tests.weights.gguf_blocks import random_kept

from anychip.ops.op import TOLERANCE
from anychip.testing.compare import normalized_error
from anychip.weights.gguf_quantized import FORMATS
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme
from anychip.weights.weight import Weight
from anychip_cpu.native.linear import NativeLinear


@pytest.fixture(scope="module", params=VARIANTS)
def library(request):
    return native_library(request.param)


def codes(generator, bits, minima, group, rows=70, columns=512):
    """Random codes, scales and minima, and the matrix [rows, columns] they mean."""
    values = torch.randint(0, 1 << bits, (rows, columns), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(rows, columns // group, generator=generator) * 0.02 + 0.001).half()
    lowest = torch.randn(rows, columns // group, generator=generator).half() if minima else None
    wide_codes = values.double() - (0 if minima else 1 << (bits - 1))
    matrix = wide_codes.view(rows, -1, group) * scales.double()[..., None]
    if lowest is not None:
        matrix = matrix + lowest.double()[..., None]
    return (values, scales, lowest, bits), matrix.view(rows, columns)


@pytest.mark.parametrize("group", [16, 32, 64, 128])
@pytest.mark.parametrize("minima", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_products(library, bits, minima, group):
    generator = torch.Generator().manual_seed(0)
    arguments, matrix = codes(generator, bits, minima, group)
    packed = library.ops.pack_codes(*arguments)
    for tokens in (1, 2, 3, 4, 5, 9, 16, 17, 60):
        x = torch.randn(tokens, 512, generator=generator)
        scale = x.view(tokens, -1, group).abs().amax(-1, keepdim=True) / 127
        rounded = ((x.view(tokens, -1, group) / scale).round() * scale).view(tokens, 512)
        got = library.ops.linear(x, packed, None)
        assert normalized_error(got, rounded.double() @ matrix.T) < 1e-4
        assert normalized_error(got, x.double() @ matrix.T) < TOLERANCE["int8-activation", "float32"]


@pytest.mark.parametrize(("bits", "minima"), [(4, False), (4, True), (8, False), (8, True)])
def test_a_row_of_a_quantized_product_does_not_depend_on_the_others(library, bits, minima):
    generator = torch.Generator().manual_seed(0)
    packed = library.ops.pack_codes(*codes(generator, bits, minima, 32)[0])
    x = torch.randn(103, 512, generator=generator)
    alone = torch.cat([library.ops.linear(row[None], packed, None) for row in x])
    for tokens in (2, 5, 6, 7, 13, 24, 48, 49, 103):
        assert torch.equal(library.ops.linear(x[:tokens], packed, None), alone[:tokens])
    x[40, 70] = float("nan")
    got = library.ops.linear(x, packed, None)
    assert got[40].isnan().all()
    assert torch.equal(got[41:], alone[41:])
    assert not torch.equal(got[:40], alone[1:41])


def test_quantized_products_do_not_depend_on_the_number_of_threads(library):
    generator = torch.Generator().manual_seed(0)
    packed = library.ops.pack_codes(*codes(generator, 4, True, 32, rows=330, columns=96)[0])
    inputs = [torch.randn(rows, 96, generator=generator) for rows in (1, 7, 17, 130)]
    before = torch.get_num_threads()
    products = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        products.append(torch.cat([library.ops.linear(x, packed, None) for x in inputs]))
    torch.set_num_threads(before)
    assert torch.equal(products[0], products[1])
    assert torch.equal(products[0], products[2])


@pytest.mark.parametrize("kind", FORMATS)
def test_types_of_gguf(library, kind):
    weight = random_kept(kind, 70, 512)
    matrix = weight.dequantize(torch.float32)
    linear = NativeLinear(library)
    packed = linear.prepare_weight(weight)
    assert packed.quantization is not None, "kept as codes"
    x = torch.randn(5, 512, generator=torch.Generator().manual_seed(0))
    assert normalized_error(linear.linear(x, packed, None), x @ matrix.T) < TOLERANCE["int8-activation", "float32"]


def test_scales_that_float16_cannot_hold_become_plain_values(library):
    weight = quantize(Weight(torch.randn(33, 64), (33, 64)), Scheme("int8", 8, 0, False, "token"))
    linear, x = NativeLinear(library), torch.randn(3, 64)
    for factor in (1e-7, 1e7):
        scale = weight.quantization.scale.float() * factor
        scaled = replace(weight, quantization=replace(weight.quantization, scale=scale))
        packed = linear.prepare_weight(scaled)
        assert packed.quantization is None
        assert normalized_error(linear.linear(x, packed, None), x @ scaled.dequantize(torch.float32).T) < 1e-5


def test_the_largest_codes_do_not_overflow(library):
    for bits in (4, 8):
        values = torch.full((32, 256), (1 << bits) - 1, dtype=torch.uint8)
        values[1] = 0
        packed = library.ops.pack_codes(values, torch.ones(32, 8).half(), None, bits)
        for sign in (1.0, -1.0):
            x = torch.full((1, 256), sign)
            expected = x.double() @ (values.double() - (1 << (bits - 1))).T
            assert normalized_error(library.ops.linear(x, packed, None), expected) < 1e-5
