"""Matrix products with model weights, and the embedding table."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import TOKEN_COUNTS, normal, token_matrices
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


def _linear_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    inner = spec.intermediate_size or 4 * spec.hidden_size
    for rows, columns in ((inner, spec.hidden_size), (spec.hidden_size, inner), (13, spec.hidden_size)):
        weight = random_weight(generator, rows, columns, spec.dtype)
        for label, x in token_matrices(generator, spec, columns):
            yield Case(f"{label} to {rows}", (x, weight, None))
            yield Case(f"{label} to {rows}, bias", (x, weight, normal(generator, rows, dtype=spec.dtype)))


def _embedding_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    table = normal(generator, spec.vocab_size, spec.hidden_size, dtype=spec.dtype)
    for tokens in TOKEN_COUNTS:
        ids = torch.randint(spec.vocab_size, (tokens,), generator=generator, dtype=torch.int32)
        yield Case(f"{tokens} tokens", (ids, table))
    yield Case("last row", (torch.tensor([spec.vocab_size - 1], dtype=torch.int32), table))


LINEAR_OPS = (Op("linear", linear, _linear_cases), Op("embedding", embedding, _embedding_cases))
