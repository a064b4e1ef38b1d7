"""What the runner does with a complete matrix before the platform packs it."""

from dataclasses import replace

import torch

from anychip.reference.platform import ReferencePlatform
from anychip.runner.preparation import Preparation
from anychip.weights.quantize import quantize
from anychip.weights.scheme import schemes
from anychip.weights.weight import Weight


class Capable(ReferencePlatform):
    @property
    def capabilities(self):
        return replace(super().capabilities, weight_formats=("int4", "int8"))


def test_what_a_platform_has_no_kernels_for_arrives_dequantized():
    prepare = Preparation(Capable(), None, torch.bfloat16)
    whole = Weight(torch.randn(8, 64), (8, 64))
    for name in ("int4", "kquant"):
        weight = quantize(whole, next(schemes(name)))
        prepared = prepare(weight)
        assert (prepared.quantization is None) == (name == "kquant")
        assert torch.equal(prepared.dequantize(torch.bfloat16), weight.dequantize(torch.bfloat16))
    assert prepare.note() == "weights: 1 matrices joined from several types dequantized to bfloat16"
