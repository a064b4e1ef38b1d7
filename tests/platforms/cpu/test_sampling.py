import pytest
import torch
from tests.platforms.cpu.native import VARIANTS, native_library

from anychip.sample.choose import sample as reference
from anychip_cpu.native.tokens import NativeTokens
from anychip_cpu.sampling import sample


def both(logits, top_k, top_p, min_p=0.0, temperature=1.0, sampler=sample):
    rows = len(logits)
    arguments = (
        torch.full((rows,), temperature),
        torch.as_tensor(top_k, dtype=torch.int32).expand(rows),
        torch.as_tensor(top_p, dtype=torch.float32).expand(rows),
        torch.full((rows,), min_p),
        torch.rand(rows, 2, generator=torch.Generator().manual_seed(1)),
        logits.shape[-1],
    )
    return sampler(logits.clone(), *arguments)[0], reference(logits.clone(), *arguments)[0]


def test_a_few_of_the_largest_logits_give_the_same_tokens_as_all():
    generator = torch.Generator().manual_seed(0)
    for spread in (0.0, 0.01, 1.0, 5.0):
        logits = torch.randn(60, 4000, generator=generator) * spread
        for top_k, top_p in ((0, 0.9), (0, 0.2), (300, 0.99), (5, 0.5)):
            got, expected = both(logits, top_k, top_p, min_p=0.001)
            assert torch.equal(got, expected)


def test_each_row_is_decided_on_its_own():
    flat, peaked = torch.zeros(1, 3000), torch.zeros(1, 3000)
    peaked[0, 7] = 50.0
    got, expected = both(torch.cat([flat, peaked, flat]), [0, 0, 400], [0.95, 0.95, 1.0])
    assert torch.equal(got, expected)
    assert got[1] == 7


@pytest.mark.parametrize("name", VARIANTS)
def test_the_native_kernel_draws_the_reference_s_tokens(name):
    kernel = NativeTokens(native_library(name)).sample
    generator = torch.Generator().manual_seed(3)
    for spread in (0.0, 0.01, 1.0, 5.0, 20.0):
        logits = torch.randn(60, 4001, generator=generator) * spread
        for top_k, top_p in ((0, 1.0), (0, 0.9), (0, 0.2), (300, 0.99), (5, 0.5), (4001, 0.7)):
            for min_p in (0.0, 0.001):
                got, expected = both(logits, top_k, top_p, min_p=min_p, temperature=0.7, sampler=kernel)
                assert (got != expected).sum() <= 1, "but for a number at the very edge between two tokens"


@pytest.mark.parametrize("name", VARIANTS)
def test_the_native_kernel_reports_what_is_no_number(name):
    logits = torch.zeros(2, 100)
    logits[0, 40] = float("nan")
    ones, numbers = torch.ones(2), torch.rand(2, 2)
    kernel = NativeTokens(native_library(name)).sample
    highest = kernel(logits, ones, torch.zeros(2, dtype=torch.int32), ones, 1 - ones, numbers, 0)[1]
    assert highest.isnan().tolist() == [True, False]
