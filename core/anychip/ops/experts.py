"""Mixture of experts: which experts a token goes to, and what they make of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.ops.activation import gelu_mul, silu_mul
from anychip.ops.composite import GELU
from anychip.ops.linear import case_weight, linear
from anychip.ops.op import TOLERANCE, Case, Op, OpSpec
from anychip.ops.shapes import TOKEN_COUNTS, accumulation_dtype, dtype_of, normal, token_matrices
from anychip.weights.weight import Weight

FEW = 4, 2, 64
"""Experts, experts a token and size of an expert in cases of models without any."""


TWICE_ROUNDED = {key: bound * 2**0.5 if "activation" in key[0] else bound for key, bound in TOLERANCE.items()}
"""Two products in a row round their inputs, and the errors add up as independent ones do."""


def route(logits: torch.Tensor, count: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` likeliest experts of each token, best first (Shazeer et al., 2017); ties go to the lowest number.

    logits [T, E] -> shares [T, k] float32, of all experts' or (`renormalize`) of the chosen ones', and experts [T, k]
    int32.
    """
    shares = torch.softmax(logits, dim=-1, dtype=accumulation_dtype(logits.dtype))
    best, order = shares.sort(dim=-1, descending=True, stable=True)
    chosen = best[:, :count]
    if renormalize:
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
    return chosen.contiguous(), order[:, :count].to(torch.int32).contiguous()


def experts(
    x: torch.Tensor, gate_up: Weight, down: Weight, shares: torch.Tensor, chosen: torch.Tensor, activation: str
) -> torch.Tensor:
    """The sum over a token's experts e of share * down_e(activation(gate_e x) * (up_e x)).

    x [T, H]; gate_up stacks E matrices [2I, H], down E matrices [H, I]; shares [T, k] float32, chosen [T, k] int32;
    silu, or a GELU. -> [T, H]. Every expert computes every token here, so that all shapes are static.
    """
    total = torch.zeros(x.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    for expert, (inner, outer) in enumerate(zip(gate_up.split(), down.split(), strict=True)):
        share = (shares * (chosen == expert)).sum(dim=-1, keepdim=True)
        hidden = linear(x, inner, None)
        hidden = silu_mul(hidden) if activation == "silu" else gelu_mul(hidden, GELU[activation])
        total += torch.where(share > 0, share * linear(hidden, outer, None), 0)
    return total.to(x.dtype)


def _shape(spec: OpSpec) -> tuple[int, int, int]:
    return (spec.num_experts, spec.experts_per_token, spec.expert_size) if spec.num_experts else FEW


def _route_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    num_experts, count, _ = _shape(spec)
    for tokens in TOKEN_COUNTS:
        logits = normal(generator, tokens, num_experts, dtype=spec.dtype, scale=2.0)
        for renormalize in (False, True):
            yield Case(f"{tokens} tokens{', renormalized' * renormalize}", (logits, count, renormalize))
    yield Case("ties", (torch.zeros(3, num_experts, dtype=dtype_of(spec.dtype)), count, True))


def _experts_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    num_experts, count, size = _shape(spec)
    gate_up = case_weight(generator, spec, num_experts * 2 * size, spec.hidden_size).stacked(num_experts)
    down = case_weight(generator, spec, num_experts * spec.hidden_size, size).stacked(num_experts)
    for label, x in token_matrices(generator, spec, spec.hidden_size):
        logits = normal(generator, x.shape[0], num_experts, dtype="float32", scale=2.0)
        for activation in ("silu", "gelu_pytorch_tanh"):
            yield Case(f"{label} {activation}", (x, gate_up, down, *route(logits, count, True), activation))
    shares = torch.full((5, count), 1 / count)
    crowd = torch.arange(count, dtype=torch.int32).repeat(5, 1)
    x = normal(generator, 5, spec.hidden_size, dtype=spec.dtype)
    yield Case("all tokens to the first experts", (x, gate_up, down, shares, crowd, "silu"))


EXPERT_OPS = (
    Op("route", route, _route_cases, used=lambda spec: spec.num_experts > 0),
    Op("experts", experts, _experts_cases, tolerance=TWICE_ROUNDED, used=lambda spec: spec.num_experts > 0),
)
