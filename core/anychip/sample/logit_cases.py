"""Generated calls of the ops on logits: ties, masked tokens, rows without a penalty between others, ids below 0."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.ops.op import Case, OpSpec
from anychip.ops.shapes import normal

ROWS = 5
SLOTS = 4


def apply_penalties_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Every row, some, one of one, none; on logits that may be overwritten, and on others."""
    for rows, index in ((ROWS, (0, 2, 3)), (3, (0, 1, 2)), (1, (0,)), (2, ())):
        logits = _logits(generator, rows, spec)
        history = *_places(generator, index), *_history(generator, spec)
        penalties = tuple(torch.rand(len(index), generator=generator) + shift for shift in (-0.5, -0.2, 0.6))
        for keep in (True, False):
            case = logits.clone(), *history, *penalties, keep
            yield Case(f"{len(index)} of {rows} rows{', kept' * keep}", case, writes=() if keep else (0,))


def count_tokens_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Tokens of some rows, some of which have none."""
    for rows, index in ((ROWS, (0, 2, 3)), (3, (0, 1, 2)), (1, (0,))):
        token_ids = torch.randint(-2, spec.vocab_size, (rows,), generator=generator)
        token_ids[0] = -1
        places = _places(generator, index)
        yield Case(f"{len(index)} of {rows} rows", (token_ids, *places, *_history(generator, spec)), writes=(3, 4))


def add_bias_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Several tokens a row, one of which is forbidden twice."""
    for count in (1, 7, 300):
        logits = normal(generator, ROWS, spec.vocab_size, dtype="float32", scale=4.0)
        places = torch.randperm(ROWS * spec.vocab_size, generator=generator)[:count]
        index, tokens = places // spec.vocab_size, places % spec.vocab_size
        values = torch.randn(count, generator=generator) * 10
        yield Case(f"{count} tokens", (logits, index, tokens, values), writes=(0,))
        index, tokens = torch.cat([index, index[:1]]), torch.cat([tokens, tokens[:1]])
        values = torch.cat([values, values[:1]]).masked_fill(tokens == tokens[0], float("-inf"))
        yield Case(f"{count} tokens, one forbidden twice", (logits.clone(), index, tokens, values), writes=(0,))


def mask_tokens_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Every row and some, in any order; nothing allowed, and everything."""
    words = -(-spec.vocab_size // 32)
    for rows in ((0, 1, 2, 3, 4), (3, 1), (4,)):
        logits = normal(generator, ROWS, spec.vocab_size, dtype="float32", scale=4.0)
        bits = torch.randint(-(2**31), 2**31, (len(rows), words), generator=generator, dtype=torch.int32)
        yield Case(f"{len(rows)} rows", (logits, torch.tensor(rows), bits), writes=(0,))
    logits = normal(generator, ROWS, spec.vocab_size, dtype="float32", scale=4.0)
    bits = torch.tensor([[0], [-1]], dtype=torch.int32).expand(-1, words).contiguous()
    yield Case("nothing and everything", (logits, torch.tensor([0, 2]), bits), writes=(0,))


def gather_logprobs_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """No alternative, some, all; ties, masked tokens."""
    for rows, count in ((1, 0), (ROWS, 5), (2, 20)):
        logits = _logits(generator, rows, spec)
        token_ids = torch.randint(-2, spec.vocab_size, (rows,), generator=generator)
        yield Case(f"best {count} in {rows} rows", (logits, token_ids, count))
        yield Case(f"best {count} in {rows} rows, ties", (logits.round(), token_ids, count))
    yield Case("all", (_logits(generator, 1, spec), torch.tensor([3]), 2 * spec.vocab_size))
    equal = torch.zeros_like(_logits(generator, 3, spec))
    yield Case("best 5 in 3 rows, all equal", (equal, torch.tensor([0, 1, -1]), 5))


def _logits(generator: torch.Generator, rows: int, spec: OpSpec) -> torch.Tensor:
    """Some of them masked in each row but the first."""
    logits = normal(generator, rows, spec.vocab_size, dtype=spec.dtype, scale=4.0)
    logits[1:, 3::7] = float("-inf")
    return logits


def _places(generator: torch.Generator, index: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows, and the slot of each."""
    return torch.tensor(index, dtype=torch.int64), torch.randperm(SLOTS, generator=generator)[: len(index)]


def _history(generator: torch.Generator, spec: OpSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts of each slot's tokens, and whether they were seen."""
    counts = torch.randint(-6, 4, (SLOTS, spec.vocab_size), generator=generator, dtype=torch.int32).clamp_(min=0)
    return counts, (counts > 0) | (torch.rand(counts.shape, generator=generator) < 0.1)
