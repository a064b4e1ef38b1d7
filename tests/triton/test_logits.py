"""What is done to logits and read off them, in the interpreter against the references: drawn shapes, ties, odd rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.sample.logprobs import gather_logprobs
from anychip.sample.masks import add_bias, mask_tokens
from anychip.sample.penalties import apply_penalties, count_tokens
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip.triton.logits import Logits

OURS = Logits(Chip(6), part=64)
TOLERANCE = 1e-6
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ODD = {"nan": float("nan"), "-nan": -float("nan"), "inf": float("inf"), "-inf": float("-inf"), "-0": -0.0}

Batch = tuple[torch.Tensor, torch.Generator]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Logits [S, V], some of them equal, infinite or no numbers, and what further numbers are drawn from."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    rows, vocabulary = draw(st.integers(1, 4)), draw(st.sampled_from((1, 5, 64, 129, 300)))
    logits = torch.randn(rows, vocabulary, generator=generator) * 3
    if draw(st.booleans()):
        logits = logits.round()
    for row, odd in enumerate(draw(st.lists(st.sampled_from((None, "all", *ODD)), max_size=rows))):
        if odd is not None:
            some = torch.rand(vocabulary, generator=generator) < (1.0 if odd == "all" else 0.1)
            logits[row, some] = ODD.get(odd, float("-inf"))
    return logits.to(draw(st.sampled_from(DTYPES))), generator


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from((0, 1, 3, 20)))
def test_logprobs(batch: Batch, count: int) -> None:
    logits, generator = batch
    token_ids = torch.randint(-2, logits.shape[1], (len(logits),), generator=generator)
    ids, values, ranks = OURS.gather_logprobs(logits, token_ids, count)
    wanted_ids, wanted, wanted_ranks = gather_logprobs(logits, token_ids, count)
    assert torch.equal(ranks, wanted_ranks)
    # Absolute, in last places of a logit: the logarithm of nearly 1 is nearly 0.
    torch.testing.assert_close(values, wanted, rtol=2e-6, atol=4e-6, equal_nan=True)
    numbers = ~logits.isnan().any(-1)
    assert torch.equal(ids[numbers], wanted_ids[numbers])
    for each in (ids, wanted_ids):
        assert ((each >= 0) & (each < logits.shape[1])).all()


@pytest.mark.parametrize("score", [gather_logprobs, OURS.gather_logprobs], ids=["reference", "ours"])
def test_equal_logits_come_by_their_ids(score: type[gather_logprobs]) -> None:
    logits = torch.zeros(2, 1000)
    logits[1, ::3], logits[1, [70, 901]] = -0.0, 2.0
    ids, values, ranks = score(logits, torch.tensor([999, 3]), 5)
    assert ids.tolist() == [[999, 0, 1, 2, 3, 4], [3, 70, 901, 0, 1, 2]]
    assert score(logits.flip(1), torch.tensor([999, 3]), 5)[0].tolist() == [ids[0].tolist(), [3, 98, 929, 0, 1, 2]]
    assert ranks.tolist() == [1, 3]
    assert (values.diff(dim=1)[:, 1:] <= 0).all()


def test_the_logprob_of_a_certain_token_is_not_above_zero() -> None:
    logits = torch.full((1, 1000), -50.0)
    logits[0, 7] = 3.3
    assert float(OURS.gather_logprobs(logits, torch.tensor([7]), 1)[1].max()) <= 0.0


History = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def history(rows: int, vocabulary: int, generator: torch.Generator) -> History:
    """Some rows in slots of their own: index, slots, counts, seen."""
    index = (torch.rand(rows, generator=generator) < 0.6).nonzero().flatten()
    slots = torch.randperm(rows + 2, generator=generator)[: len(index)]
    counts = torch.randint(-3, 4, (rows + 2, vocabulary), generator=generator, dtype=torch.int32).clamp(min=0)
    return index, slots, counts, (counts > 0) | (torch.rand(counts.shape, generator=generator) < 0.2)


@settings(max_examples=60, deadline=None)
@given(batches(), st.booleans())
def test_penalties(batch: Batch, keep: bool) -> None:
    logits, generator = batch
    past = history(*logits.shape, generator)
    penalties = [torch.rand(len(past[0]), generator=generator) + shift for shift in (-0.5, -0.5, 0.5)]
    wanted = apply_penalties(logits.clone(), *past, *penalties, True)
    given = logits.clone()
    out = OURS.apply_penalties(given, *past, *penalties, keep)
    assert normalized_error(out, wanted) < TOLERANCE
    in_place = not keep and logits.dtype == torch.float32
    assert out is given if in_place else torch.equal(given.nan_to_num(7), logits.nan_to_num(7))
    others = [row for row in range(len(logits)) if row not in past[0].tolist()]
    assert torch.equal(out[others].nan_to_num(7), logits[others].float().nan_to_num(7))


def test_the_check_of_penalties_sees_another_slot() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, ones = torch.randn(2, 300, generator=generator), torch.full((2,), 1.5)
    index, _, counts, seen = history(2, 300, generator)
    index, slots = torch.arange(2), torch.tensor([1, 2])
    wanted = apply_penalties(logits, index, slots, counts, seen, ones, ones, ones, True)
    out = OURS.apply_penalties(logits, index, slots.flip(0), counts, seen, ones, ones, ones, True)
    assert normalized_error(out, wanted) > 0.1


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(0, 1000))
def test_counts(rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    index, slots, counts, seen = history(rows, 17, generator)
    token_ids = torch.randint(-2, 17, (rows,), generator=generator)
    wanted = counts.clone(), seen.clone()
    count_tokens(token_ids, index, slots, *wanted)
    OURS.count_tokens(token_ids, index, slots, counts, seen)
    assert torch.equal(counts, wanted[0])
    assert torch.equal(seen, wanted[1])


@settings(max_examples=30, deadline=None)
@given(batches())
def test_bias_and_masks(batch: Batch) -> None:
    logits, generator = batch
    rows, vocabulary = logits.shape
    ours, wanted = (logits.float().clone() for _ in range(2))
    places = torch.randperm(logits.numel(), generator=generator)[:150]
    places = torch.cat([places, places[:3], places[:3]])  # these are forbidden too, and twice
    index, tokens = places // vocabulary, places % vocabulary
    values = torch.randn(len(places), generator=generator)
    values[-2 * min(3, logits.numel()) :] = float("-inf")
    bits = torch.randint(-(2**31), 2**31, (rows, -(-vocabulary // 32)), generator=generator, dtype=torch.int32)
    masked = torch.randperm(rows, generator=generator)[: max(1, rows - 1)]
    for edited, add, mask in ((ours, OURS.add_bias, OURS.mask_tokens), (wanted, add_bias, mask_tokens)):
        add(edited, index, tokens, values)
        mask(edited, masked, bits[: len(masked)].contiguous())
    assert torch.equal(ours.nan_to_num(7), wanted.nan_to_num(7))
