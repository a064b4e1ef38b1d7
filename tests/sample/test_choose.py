import numpy as np
import pytest
import torch
from tests.sample.naive import distribution

from anychip.engine.batch import RowSampling
from anychip.sample.choose import draw, greedy, sample

SIZES = (1, 5, 128, 129, 1000, 50257)


def parameters(rows, **values):
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **values}
    dtypes = {"top_k": torch.int32}
    return [torch.full((rows,), value, dtype=dtypes.get(name, torch.float32)) for name, value in given.items()]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_takes_the_highest_and_the_lowest_id_of_equals(size, dtype):
    logits = torch.randn(7, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    logits[0] = logits[0].round()
    logits[1] = 3.0
    logits[2, size // 2 :] = logits[2].amax() + 1
    ids, highest = greedy(logits)
    assert ids.tolist() == [int(np.argmax(row)) for row in logits.float().numpy()]
    assert torch.equal(highest, logits.float().amax(-1))


def test_greedy_reports_what_is_not_a_number():
    logits = torch.zeros(3, 300)
    logits[0, 299], logits[1] = float("nan"), float("-inf")
    ids, highest = greedy(logits)
    assert highest.isnan().tolist() == [True, False, False]
    assert highest[1] == float("-inf")
    assert ((ids >= 0) & (ids < 384)).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_draw_never_takes_a_token_of_weight_zero(size):
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(64, size, generator=generator) * (torch.rand(64, size, generator=generator) > 0.9)
    weights[:, -1] += 1e-30
    for number in (0.0, 1 - 2.0**-24, 0.5):
        ids = draw(weights, torch.full((64, 2), number))
        assert (weights.gather(1, ids[:, None]) > 0).all()


def test_a_draw_reaches_tokens_far_below_the_resolution_of_one_number():
    weights = torch.zeros(1, 256)
    weights[0, 0], weights[0, 5], weights[0, 130] = 1.0, 1e-9, 1e-3
    numbers = torch.tensor([[0.0, 1 - 2.0**-24], [1 - 2.0**-24, 0.0]])
    ids = draw(weights.expand(2, -1), numbers)
    assert ids.tolist() == [0, 130]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.3},
        {"top_k": 3},
        {"top_k": 500},
        {"top_p": 0.7},
        {"top_p": 0.01},
        {"min_p": 0.2},
        {"temperature": 1.7, "min_p": 0.05, "top_k": 30, "top_p": 0.8},
    ],
    ids=str,
)
@pytest.mark.parametrize("whole", [False, True])
def test_draws_follow_the_float64_distribution(fields, whole):
    size, count = 300, 20000
    logits = torch.randn(size, generator=torch.Generator().manual_seed(3)) * 2
    expected = distribution(logits.double().numpy(), RowSampling(seed=0, **fields))
    top_k, top_p = fields.get("top_k", 0), fields.get("top_p", 1.0)
    candidates = size if whole or (top_p < 1 and not top_k) else min(top_k, size)
    numbers = torch.rand(count, 2, generator=torch.Generator().manual_seed(4))
    ids, highest = sample(logits.expand(count, -1).contiguous(), *parameters(count, **fields), numbers, candidates)
    observed = np.bincount(ids.numpy(), minlength=size)
    assert (observed[expected == 0] == 0).all()
    assert torch.equal(highest, logits.amax().expand(count))
    likely = expected * count >= 5
    chi_square = ((observed - expected * count)[likely] ** 2 / (expected * count)[likely]).sum()
    freedom = max(1, likely.sum() - 1)
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_ties_at_the_threshold_are_kept_whatever_the_order():
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0]])
    numbers = torch.rand(600, 2, generator=torch.Generator().manual_seed(5))
    ids, _ = sample(logits.expand(600, -1).contiguous(), *parameters(600, top_k=3), numbers, 3)
    assert set(ids.tolist()) == {1, 2, 3, 4, 5}


def test_more_candidates_change_nothing():
    logits = torch.randn(200, 1000, generator=torch.Generator().manual_seed(6)) * 3
    arguments = parameters(200, temperature=0.9, top_k=40, top_p=0.9)
    numbers = torch.rand(200, 2, generator=torch.Generator().manual_seed(7))
    few, many = (sample(logits, *arguments, numbers, count)[0] for count in (40, 1000))
    assert torch.equal(few, many)


def test_a_tiny_temperature_is_greedy():
    logits = torch.randn(9, 500, generator=torch.Generator().manual_seed(8))
    for temperature in (1e-3, 1e-8, 1e-45):
        ids, _ = sample(logits, *parameters(9, temperature=temperature), torch.full((9, 2), 0.999), 0)
        assert torch.equal(ids, logits.argmax(-1))
