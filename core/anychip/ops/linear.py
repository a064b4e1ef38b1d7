"""Matrix products with model weights, and the embedding table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.nn import functional

from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import TOKEN_COUNTS, normal, token_matrices
from anychip.weights.quantize import fits, quantize
from anychip.weights.scheme import schemes
from anychip.weights.weight import Weight


def linear(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """x @ weight.T + bias. [T, K], [N, K], [N] or None -> [T, N]."""
    return functional.linear(x, weight.dequantize(x.dtype), bias)


def embedding(token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of the table. [T] int, [V, H] -> [T, H]."""
    return functional.embedding(token_ids, table)


def random_weight(generator: torch.Generator, rows: int, columns: int, dtype: str) -> Weight:
    """A Weight [rows, columns] whose products keep the scale of their input."""
    return Weight(normal(generator, rows, columns, dtype=dtype, scale=columns**-0.5), (rows, columns))


def case_weight(generator: torch.Generator, spec: OpSpec, rows: int, columns: int) -> Weight:
    """A random weight in the first of the spec's formats, plain without any."""
    weight = random_weight(generator, rows, columns, spec.dtype)
    scheme = next(schemes(spec.weight_formats[0])) if spec.weight_formats else None
    return weight if scheme is None or not fits(weight, scheme) else quantize(weight, scheme)


def _linear_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    inner = spec.intermediate_size or 4 * spec.hidden_size
    shapes = ((inner, spec.hidden_size), (spec.hidden_size, inner), (13, spec.hidden_size))
    for kind, weight in _quantized(generator, spec) if spec.weight_formats else _plain(generator, spec, shapes):
        rows, columns = weight.shape
        for label, x in token_matrices(generator, spec, columns):
            yield Case(f"{label} to {rows}{kind}", (x, weight, None))
            yield Case(f"{label} to {rows}{kind}, bias", (x, weight, normal(generator, rows, dtype=spec.dtype)))


def _plain(generator: torch.Generator, spec: OpSpec, shapes: Iterable[tuple[int, int]]) -> Iterator[tuple[str, Weight]]:
    for rows, columns in shapes:
        yield "", random_weight(generator, rows, columns, spec.dtype)


def _quantized(generator: torch.Generator, spec: OpSpec) -> Iterator[tuple[str, Weight]]:
    """Each way to quantize to the spec's formats, with rows that no tile divides and as long as a few groups."""
    for name in spec.weight_formats:
        for scheme in schemes(name):
            for rows, columns in ((40, 384), (77, 96)):
                weight = random_weight(generator, rows, columns, spec.dtype)
                if fits(weight, scheme):
                    kind = f"{name}, groups of {scheme.group_size or columns}{', zero points' * scheme.zero_points}"
                    yield f", {kind}, activations: {scheme.activation}", quantize(weight, scheme)


def _embedding_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    table = normal(generator, spec.vocab_size, spec.hidden_size, dtype=spec.dtype)
    for tokens in TOKEN_COUNTS:
        ids = torch.randint(spec.vocab_size, (tokens,), generator=generator, dtype=torch.int32)
        yield Case(f"{tokens} tokens", (ids, table))
    yield Case("last row", (torch.tensor([spec.vocab_size - 1], dtype=torch.int32), table))


LINEAR_OPS = (Op("linear", linear, _linear_cases), Op("embedding", embedding, _embedding_cases))
