"""Inputs of the composites."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.ops.attention_cases import attention_cases, reference_cache
from anychip.ops.linear import case_weight
from anychip.ops.norm import EPSILON
from anychip.ops.op import Case, OpSpec
from anychip.ops.rope import rotation_table
from anychip.ops.shapes import normal, token_matrices


def norm_linear_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """With and without a residual and a bias."""
    norm_weight = normal(generator, spec.hidden_size, dtype=spec.dtype)
    rows = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    weight = case_weight(generator, spec, rows, spec.hidden_size)
    for label, x in token_matrices(generator, spec, spec.hidden_size):
        residual = normal(generator, *x.shape, dtype=spec.dtype)
        bias = normal(generator, rows, dtype=spec.dtype)
        yield Case(f"{label} first", (x, None, norm_weight, EPSILON, weight, None))
        yield Case(f"{label} residual, bias", (x, residual, norm_weight, EPSILON, weight, bias))


def qk_norm_rope_kv_write_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """With and without head norms, in the reference's cache layout."""
    table = rotation_table(spec.head_dim, length=256)
    for case in attention_cases(generator, spec):
        norms = normal(generator, 2, spec.head_dim, dtype=spec.dtype)
        cache, plan = reference_cache(case)
        q_norm, k_norm = (norms[0], norms[1]) if case.spec.window is None else (None, None)
        arguments = (case.q, case.k, case.v, q_norm, k_norm, EPSILON, case.inputs.positions, table, cache, plan)
        yield Case(case.label, arguments, writes=(8,))


def gated_mlp_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Each activation."""
    inner = spec.intermediate_size or 4 * spec.hidden_size
    gate_up = case_weight(generator, spec, 2 * inner, spec.hidden_size)
    down = case_weight(generator, spec, spec.hidden_size, inner)
    for label, x in token_matrices(generator, spec, spec.hidden_size):
        for activation in ("silu", "gelu_pytorch_tanh"):
            yield Case(f"{label} {activation}", (x, gate_up, down, activation))
