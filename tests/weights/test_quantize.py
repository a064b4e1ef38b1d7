"""Rounding to fewer bits at load: what the codes mean, and which options go together."""

import pytest
import torch

from anychip.config import make_config
from anychip.errors import UserError
from anychip.weights.quantize import fits, quantize
from anychip.weights.scheme import Scheme, scheme_of, schemes
from anychip.weights.weight import Part, Weight

SCHEMES = [scheme for name in ("int4", "int8", "fp8") for scheme in schemes(name)]
STEPS = {(4, True): 15, (4, False): 16, (8, False): 254}
"""Steps between the lowest and the highest code."""


def matrix(rows=70, columns=384, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, columns, generator=generator) * torch.logspace(-2, 2, rows).unsqueeze(1)
    return Weight(values.to(dtype), (rows, columns), (Part("one", 30), Part("other", rows - 30)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_value_moves_by_more_than_half_a_step(scheme, dtype):
    weight = matrix(dtype=dtype)
    rounded = quantize(weight, scheme)
    assert (rounded.shape, rounded.parts) == (weight.shape, weight.parts)
    groups = weight.values.float().view(70, -1, scheme.group_size or 384)
    off = (rounded.dequantize(torch.float32).view_as(groups) - groups).abs()
    if scheme.format == "fp8":
        assert (off <= groups.abs() / 16 + groups.abs().amax(-1, keepdim=True) * 2.0**-16).all()
        return
    span = groups.amax(-1) - groups.amin(-1) if scheme.zero_points else 2 * groups.abs().amax(-1)
    step = span / STEPS[scheme.bits, scheme.zero_points] * 1.01 + 2.0**-24
    # A signed code of 4 bits has no counterpart of its extreme, so that a whole step may be missing there.
    assert (off.amax(-1) <= step * (1.0 if scheme.bits == 4 and not scheme.zero_points else 0.58)).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_scales_survive_float16_and_codes_their_range(scheme):
    quantization = quantize(matrix(), scheme).quantization
    assert quantization is not None
    assert (quantization.format, quantization.bits, quantization.activation) == (
        scheme.format,
        scheme.bits,
        scheme.activation,
    )
    assert quantization.scale.shape == (70, 384 // (scheme.group_size or 384))
    assert (quantization.scale.float() != 0).all()
    assert scheme.format == "fp8" or quantization.scale.dtype == torch.float16
    assert (quantization.zero_point is not None) == scheme.zero_points


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_zeros_constants_and_what_is_no_number(scheme):
    values = torch.zeros(4, 128)
    values[1], values[2], values[3, 5] = 3.0, -3.0, float("nan")
    rounded = quantize(Weight(values, (4, 128)), scheme).dequantize(torch.float32)
    assert (rounded[0] == 0).all()
    torch.testing.assert_close(rounded[1:3], values[1:3], rtol=2e-3, atol=0)
    assert rounded[3, 5].isnan()


def test_rows_without_whole_groups_are_left_alone():
    scheme = Scheme("int4", 4, 128, True, "none")
    assert fits(matrix(), scheme)
    assert not fits(matrix(columns=192), scheme)
    assert not fits(matrix(columns=48), Scheme("int8", 8, 0, False, "token"))
    assert not fits(quantize(matrix(), scheme), scheme)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"quantization": "int8"}, Scheme("int8", 8, 0, False, "token")),
        ({"quantization": "int8", "quantization_group_size": 64}, Scheme("int8", 8, 64, False, "token")),
        ({"quantization": "int4"}, Scheme("int4", 4, 32, True, "none")),
        ({"quantization": "int4", "quantization_symmetric": True}, Scheme("int4", 4, 32, False, "none")),
        ({"quantization": "fp8"}, Scheme("fp8", 8, 0, False, "token")),
    ],
)
def test_options_name_a_scheme(options, expected):
    assert scheme_of(make_config(options, {})) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"quantization_group_size": 32},
        {"quantization": "fp8", "quantization_group_size": 32},
        {"quantization": "int4", "quantization_group_size": 48},
        {"quantization_symmetric": True},
        {"quantization": "int8", "quantization_symmetric": True},
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options):
    with pytest.raises(UserError, match="does not go with --quantization"):
        scheme_of(make_config(options, {}))


def test_an_unknown_format_is_refused():
    with pytest.raises(UserError, match="quantization"):
        make_config({"quantization": "int3"}, {})


@pytest.mark.parametrize(
    ("role", "fp8", "int8"),
    [
        ("inner", ("fp8", "token"), ("int8", "group")),
        ("attention", ("int8", "group"), ("int8", "group")),
        ("attended", ("int8", "token"), ("int8", "token")),
        ("first", ("int8", "group"), ("int8", "group")),
        ("output", ("int8", "none"), ("int8", "none")),
    ],
)
def test_what_a_matrix_is_for_decides_what_becomes_of_it(role, fp8, int8):
    for name, expected in (("fp8", fp8), ("int8", int8)):
        scheme = Scheme(name, 8, 0, False, "token").of(role)
        assert (scheme.format, scheme.activation) == expected
    four = Scheme("int4", 4, 32, True, "none")
    assert four.of(role) == four
