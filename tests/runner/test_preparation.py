"""What the runner does with a complete matrix before the platform packs it."""

from dataclasses import replace

import pytest
import torch

from anychip.reference.platform import ReferencePlatform
from anychip.runner.preparation import Preparation
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme, schemes
from anychip.weights.weight import Weight


class Capable(ReferencePlatform):
    formats: tuple[str, ...] = ("int4", "int8")

    @property
    def capabilities(self):
        return replace(super().capabilities, weight_formats=self.formats)


def test_what_a_platform_has_no_kernels_for_arrives_dequantized():
    prepare = Preparation(Capable(), None, torch.bfloat16)
    whole = Weight(torch.randn(8, 64), (8, 64))
    for name in ("int4", "kquant"):
        weight = quantize(whole, next(schemes(name)))
        prepared = prepare(weight)
        assert (prepared.quantization is None) == (name == "kquant")
        assert torch.equal(prepared.dequantize(torch.bfloat16), weight.dequantize(torch.bfloat16))
    assert prepare.note() == "weights: 1 matrices joined from several types dequantized to bfloat16"


@pytest.mark.parametrize("formats", [("fp8", "int8"), ("fp8",), ("int8",)])
def test_of_a_mixture_a_platform_keeps_what_it_can_and_says_so(formats):
    """Without kernels for the format that was asked for, nothing of it is kept."""
    platform = Capable()
    platform.formats = formats
    prepare = Preparation(platform, Scheme("fp8", 8, 0, False, "token"), torch.float32)
    values = torch.randn(8, 64)
    kept = [prepare(Weight(values, (8, 64), role=role)).quantization for role in ("inner", "attention", "output")]
    found = [None if quantization is None else (quantization.format, quantization.activation) for quantization in kept]
    expected = [("fp8", "token"), ("int8", "group"), ("int8", "none")]
    assert found == [each if "fp8" in formats and each[0] in formats else None for each in expected]
    assert prepare.note().startswith("quantization: fp8, 3 of 3 matrices; 2 became int8")
