"""Draws in the interpreter: what top-k and top-p keep, that a row's draw is its own, and how often each token comes."""

from __future__ import annotations

import numpy as np
import torch
from tests.sample.naive import distribution
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.engine.batch import RowSampling
from anychip.sample.choose import sample
from anychip.triton.chip import Chip
from anychip.triton.sampling import Sampling

LAST = 1 - 2.0**-10
"""Near 1, but not so near that how a sum was rounded would decide."""
KINDS = (
    {}, {"min_p": 0.05}, {"top_k": 5}, {"top_p": 0.9}, {"top_p": 0.6, "top_k": 40, "min_p": 0.01}, {"top_p": 1e-6},
    {"top_p": 0.7, "min_p": 0.02},
    {"top_k": 290, "top_p": 0.999},
    {"top_k": 1000},
)  # fmt: skip


def parameters(kinds: list[dict[str, float]], temperature: list[float]) -> tuple[torch.Tensor, ...]:
    """Temperature, top_k, top_p and min_p of rows."""
    top_k = torch.tensor([int(kind.get("top_k", 0)) for kind in kinds], dtype=torch.int32)
    top_p, min_p = (
        torch.tensor([kind.get(name, off) for kind in kinds]) for name, off in (("top_p", 1.0), ("min_p", 0.0))
    )
    return torch.tensor(temperature), top_k, top_p, min_p


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from((1, 200, 300, 5000)),
    st.sampled_from(("float32", "bfloat16", "ties", "equal")),
    st.sampled_from((16, 256, 16384)),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
)
def test_what_is_kept_is_what_the_reference_keeps(
    seed: int, vocabulary: int, numbers: str, room: int, kinds: list[dict[str, float]]
) -> None:
    """Draws at either end and between, of short lists that hold what they should and of such that do not (`room`)."""
    generator, rows = torch.Generator().manual_seed(seed), len(kinds)
    logits = torch.randn(rows, vocabulary, generator=generator) * 3
    logits[0, : vocabulary // 2] = float("-inf")
    if numbers == "ties":
        logits = logits.round()
    elif numbers == "equal":
        logits = torch.full_like(logits, -1.5)
    if numbers == "bfloat16":
        logits = logits.bfloat16()
    heats = (torch.rand(rows, generator=generator) * 1.5 + 0.05).tolist()
    ours, given = Sampling(Chip(6), room), parameters(kinds, heats)
    for ends in ((0.0, 0.0), (LAST, LAST), (0.5, 0.3)):
        drawn = torch.tensor(ends).expand(rows, 2).contiguous()
        right = sample(logits.float(), *given, drawn, vocabulary)[0]
        assert torch.equal(ours.sample(logits, *given, drawn, vocabulary)[0], right)


def test_a_row_draws_the_same_alone_and_beside_others() -> None:
    """Whatever the others ask for, whether their logits came as float32, and in whatever order a list was filled."""
    generator, rows = torch.Generator().manual_seed(5), len(KINDS)
    logits = (torch.randn(rows, 5000, generator=generator) * 2).bfloat16()
    given, ours = parameters(list(KINDS), [0.8] * rows), Sampling(Chip(6))
    index = torch.arange(rows)

    def take(chosen: slice, logits: torch.Tensor, candidates: int, position: int) -> torch.Tensor:
        positions = torch.full((rows,), position, dtype=torch.int32)
        newest = torch.zeros(rows, dtype=torch.int32)
        fields = (field[chosen] for field in given)
        return ours.take_drawn(
            logits[chosen], index[chosen], positions[chosen], *fields, candidates, index[chosen], newest
        )

    everyone = slice(0, rows)
    for position in range(1):
        together = take(everyone, logits, 5000, position)
        assert torch.equal(together, take(everyone, logits.float(), 5000, position))
        for row, kind in enumerate(KINDS):
            alone = take(slice(row, row + 1), logits, 0 if not kind or set(kind) == {"min_p"} else 5000, position)
            assert alone[0] == together[row]
    assert not torch.equal(together, take(everyone, logits, 5000, 3))


def test_tokens_come_as_often_as_they_should() -> None:
    """Chi squared over the tokens kept, which no other one joins; other probabilities are found out."""
    count, size, kind = 60, 200, {"top_k": 6, "top_p": 0.95}
    logits = (torch.randn(size, generator=torch.Generator().manual_seed(1)) * 2.5).bfloat16()
    index = torch.arange(count)
    newest = torch.zeros(count, dtype=torch.int32)
    fields = parameters([kind] * count, [1.2] * count)
    rows = logits.expand(count, -1).contiguous()
    ids = Sampling(Chip(6)).take_drawn(rows, index * 77, index.int(), *fields, size, index, newest)
    seen = np.bincount(ids.numpy(), minlength=size)

    def strangeness(temperature: float) -> float:
        """How far the counts are from those expected, in numbers of tokens; infinite where none should be."""
        expected = count * distribution(logits.double().numpy(), RowSampling(seed=0, temperature=temperature, **kind))
        kept = expected > 0
        return (
            float("inf")
            if seen[~kept].any()
            else float(((seen - expected)[kept] ** 2 / expected[kept]).sum() / kept.sum())
        )

    assert strangeness(1.2) < 2.5
    assert strangeness(0.6) > 5
