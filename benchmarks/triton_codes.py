"""Experts and quantized linear layers in Triton, on the first CUDA device: right or wrong, and how fast.

`python benchmarks/triton_codes.py` prints a line a shape: microseconds inside a CUDA graph, bytes of weights read a
second, and the normalized error against float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton.testing
from triton_device import chip

from anychip.ops import experts as reference
from anychip.ops.linear import linear
from anychip.testing.compare import normalized_error
from anychip.triton.experts.experts import Experts
from anychip.triton.linear.codes import CodedLinear
from anychip.triton.packing import Codes, prepare_codes
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme
from anychip.weights.weight import Weight

SCHEMES = (
    Scheme("int4", 4, 128, False, "none"),
    Scheme("int4", 4, 32, True, "none"),
    Scheme("fp8", 8, 0, False, "token"),
    Scheme("int8", 8, 0, False, "token"),
)
SHAPES = ((28672, 4096), (4096, 14336), (6144, 4096))
TOKENS = (1, 8, 32, 64, 128, 2048)
EXPERTS, PER_TOKEN, HIDDEN, SIZE = 128, 8, 2048, 768
COMPARED = 128
"""Most tokens whose results are compared: the reference runs every expert on each of them."""


def microseconds(call: Callable[[], object]) -> float:
    """Median, in a graph."""
    call()
    return float(triton.testing.do_bench_cudagraph(call, rep=20, return_mode="median")) * 1e3


def random(*shape: int) -> torch.Tensor:
    """bfloat16 on the device, a matrix scaled so that products keep the scale of their input."""
    return (torch.randn(*shape, device="cuda") * shape[-1] ** -0.5).bfloat16()


def linears() -> None:
    """Each format and shape."""
    coded = CodedLinear(chip(overlap=True))
    for rows, columns in SHAPES:
        plain = Weight(random(rows, columns).float(), (rows, columns))
        for scheme in SCHEMES:
            weight = quantize(plain, scheme)
            codes = prepare_codes(weight, fragments=coded.chip.fragments).prepared
            assert isinstance(codes, Codes)
            for tokens in TOKENS:
                x = torch.randn(tokens, columns, device="cuda", dtype=torch.bfloat16)
                error = normalized_error(coded.linear(x, codes, None), linear(x.float(), weight, None))
                time = microseconds(lambda x=x, codes=codes: coded.linear(x, codes, None))
                name = f"{rows}x{columns} {scheme.format} group {scheme.group_size or columns}"
                print(
                    f"{name}, {tokens} tokens: {time:.1f} us, {codes.values.nbytes / time / 1e3:.0f} GB/s, {error:.0e}"
                )


def experts(name: str) -> None:
    """A layer of 128 experts, 8 a token, plain or in a format of 8 bits."""
    ours = Experts(chip(overlap=True))
    gate_up, down = stacked(2 * SIZE, HIDDEN, name), stacked(HIDDEN, SIZE, name)
    ready = prepare_codes(gate_up), prepare_codes(down)
    for tokens in (1, 8, 32, 128, 512, 4096, 8192):
        x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        logits = torch.randn(tokens, EXPERTS, device="cuda", dtype=torch.bfloat16)
        shares, chosen = ours.route(logits, PER_TOKEN, True)
        assert torch.equal(chosen, reference.route(logits, PER_TOKEN, True)[1]), "other experts were chosen"
        y, some = ours.experts(x, *ready, shares, chosen, "silu"), slice(COMPARED)
        wanted = reference.experts(x[some], gate_up, down, shares[some], chosen[some], "silu")
        error = normalized_error(y[some], wanted)
        time = microseconds(lambda x=x, s=shares, c=chosen: ours.experts(x, *ready, s, c, "silu"))
        read = len(chosen.unique()) * (gate_up.nbytes + down.nbytes) / EXPERTS / time / 1e3
        work = tokens * PER_TOKEN * 6 * HIDDEN * SIZE / time / 1e6
        print(f"experts {name}, {tokens} tokens: {time:.1f} us, {read:.0f} GB/s, {work:.0f} TFLOP/s, {error:.0e}")


def stacked(rows: int, columns: int, name: str) -> Weight:
    """The matrices of all experts."""
    weight = Weight(random(EXPERTS * rows, columns), (EXPERTS * rows, columns)).stacked(EXPERTS)
    return quantize(weight, Scheme(name, 8, 0, False, "token")) if name else weight


if __name__ == "__main__":
    linears()
    experts("")
    experts("fp8")
