import torch

from anychip.sample.choose import sample as reference
from anychip_cpu.sampling import sample


def both(logits, top_k, top_p, min_p=0.0, temperature=1.0):
    rows = len(logits)
    arguments = (
        torch.full((rows,), temperature),
        torch.as_tensor(top_k, dtype=torch.int32).expand(rows),
        torch.as_tensor(top_p, dtype=torch.float32).expand(rows),
        torch.full((rows,), min_p),
        torch.rand(rows, 2, generator=torch.Generator().manual_seed(1)),
        logits.shape[-1],
    )
    return sample(logits.clone(), *arguments)[0], reference(logits.clone(), *arguments)[0]


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
