"""Log-probabilities against numpy, and in what order equal logits come."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.sample.logprobs import best, gather_logprobs


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1000), st.sampled_from((1, 7, 128, 300, 1281)), st.integers(0, 20), st.floats(0.1, 3))
def test_the_best_come_by_value_then_by_id(seed, vocabulary, count, scale):
    logits = (torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale).round()
    logits[0, ::2] = float("-inf")
    values, ids = best(logits, min(count, vocabulary))
    for row, got, tokens in zip(logits.numpy(), values.numpy(), ids.numpy(), strict=True):
        order = np.lexsort((np.arange(vocabulary), -row))[:count]
        assert tokens.tolist() == order.tolist()
        assert got.tolist() == row[order].tolist()


def test_a_row_that_is_not_a_number_shows_it_and_names_tokens():
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(1))
    logits[0, 299] = float("nan")
    ids, values, ranks = gather_logprobs(logits, torch.tensor([-1, 3]), 5)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()
    assert ((ids >= 0) & (ids < 300)).all()
    assert ids[0, 0] == 0
    assert ranks[1] == (logits[1] > logits[1, 3]).sum() + 1
