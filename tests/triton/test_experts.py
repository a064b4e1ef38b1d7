"""Experts in Triton's interpreter: few, some and many tokens, plain and quantized."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.errors import UserError
from anychip.ops import experts as reference
from anychip.ops.linear import random_weight
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip.triton.experts.experts import VECTORS, Experts
from anychip.triton.experts.pairs import CHUNK, sorted_pairs
from anychip.triton.experts.shapes import WIDE
from anychip.triton.packing import Codes, prepare_codes
from anychip.triton.tuning import Tuning, WeightTile
from anychip.weights.quantize import quantize
from anychip.weights.scheme import Scheme
from anychip.weights.weight import Weight

OURS = Experts(Chip(6))
COUNT, PER_TOKEN, HIDDEN, SIZE = 8, 3, 64, 32
TOKENS = (1, 3, 7, 40, 700)
"""Each reads its own experts; pairs are sorted, in one chunk; in several."""
LIMITS = {"": 2e-6, "int8": 3e-2, "fp8": 2e-1}
"""Of two products whose inputs are rounded to 8 bits; the interpreter's rounding to 8-bit floats loses carries."""


def stacked(seed: int, rows: int, columns: int, name: str) -> Weight:
    weight = random_weight(torch.Generator().manual_seed(seed), rows, columns, "float32").stacked(COUNT)
    return quantize(weight, Scheme(name, 8, 0, False, "token")) if name else weight


def layer(name: str) -> tuple[Weight, Weight]:
    """A layer's weights in one format."""
    return stacked(1, COUNT * 2 * SIZE, HIDDEN, name), stacked(2, COUNT * HIDDEN, SIZE, name)


def inputs(tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, shares and chosen experts."""
    generator = torch.Generator().manual_seed(tokens)
    logits = torch.randn(tokens, COUNT, generator=generator)
    return torch.randn(tokens, HIDDEN, generator=generator), *reference.route(logits, PER_TOKEN, True)


def test_each_way_has_its_tokens() -> None:
    assert TOKENS[0] <= VECTORS < TOKENS[2]
    assert TOKENS[3] * PER_TOKEN <= CHUNK < TOKENS[4] * PER_TOKEN


@pytest.mark.parametrize(
    ("name", "tokens"),
    [*(("", tokens) for tokens in TOKENS), *((name, tokens) for name in ("int8", "fp8") for tokens in (3, 40))],
)
def test_as_the_reference(name: str, tokens: int) -> None:
    weights, (x, shares, chosen) = layer(name), inputs(tokens)
    ours = OURS.experts(x, *map(prepare_codes, weights), shares, chosen, "silu")
    limit = LIMITS["" if tokens <= VECTORS else name]
    assert normalized_error(ours, reference.experts(x, *weights, shares, chosen, "silu")) < limit


@pytest.mark.parametrize("tokens", [2, 40, 350])
def test_all_tokens_to_the_same_experts(tokens: int) -> None:
    """More pairs than a block holds."""
    weights, (x, shares, _) = layer(""), inputs(tokens)
    chosen = torch.tensor([[7, 0, 3]], dtype=torch.int32).repeat(tokens, 1)
    ours = OURS.experts(x, *weights, shares, chosen, "gelu_pytorch_tanh")
    wanted = reference.experts(x, *weights, shares, chosen, "gelu_pytorch_tanh")
    assert normalized_error(ours, wanted) < LIMITS[""]
    wrong = reference.experts(x, *weights, shares, chosen.flip(1), "gelu_pytorch_tanh")
    assert normalized_error(ours, wrong) > 0.1  # negative control


@pytest.mark.parametrize("tokens", [20, 40, 90, 300])
def test_wide_blocks_and_tiles_by_descriptor(tokens: int) -> None:
    """In float16: what the interpreter makes of bfloat16 is wrong. Tiles do not divide the matrices."""
    wide = replace(
        Tuning(),
        experts_copied=(WeightTile(64, 32, 4, 2), WeightTile(32, 64, 4, 2)),
        experts_gated=WeightTile(64, 32, 4, 2),
        experts_down=WeightTile(128, 64, 4, 2),
    )
    gate_up, down = (replace(each, values=each.values.half()) for each in layer(""))
    x, shares, chosen = inputs(tokens)
    assert inputs(300)[2].numel() >= WIDE * COUNT
    wanted, wrong = (
        reference.experts(x, gate_up.dequantized(torch.float32), down.dequantized(torch.float32), shares, given, "silu")
        for given in (chosen, chosen.flip(1))
    )
    for descriptors in (False, True):
        ours = Experts(Chip(6, tuning=wide, descriptors=descriptors)).experts(
            x.half(), gate_up, down, shares, chosen, "silu"
        )
        assert normalized_error(ours.float(), wanted) < 2e-3
        assert normalized_error(ours.float(), wrong) > 0.1  # negative control


@pytest.mark.parametrize("tokens", [1, 40, 700, 1500])
@pytest.mark.parametrize("one", [False, True])
def test_each_pair_has_a_place_in_a_block_of_its_expert(tokens: int, one: bool) -> None:
    _, shares, chosen = inputs(tokens)
    if one:
        chosen = torch.tensor([[7, 0, 3]], dtype=torch.int32).repeat(tokens, 1)
    pairs = sorted_pairs(OURS.chip, shares, chosen, COUNT, 16)
    blocks, used = pairs.order.view(-1, 16), int(pairs.used)
    assert (pairs.owners[:used] >= 0).all()
    assert (pairs.owners[used:] == -1).all()
    held = blocks[:used] >= 0
    assert torch.equal(held, torch.arange(16) < held.sum(1)[:, None])  # those that are not full end in gaps
    assert torch.equal(blocks[:used][held].sort()[0], torch.arange(chosen.numel(), dtype=torch.int32))
    owners = pairs.owners[:used, None].expand(-1, 16)[held]
    assert torch.equal(chosen.flatten()[blocks[:used][held].long()], owners)


def test_one_of_two_matrices_may_stay_plain() -> None:
    (gate_up, _), (_, down) = layer("int8"), layer("")
    x, shares, chosen = inputs(7)
    ours = OURS.experts(x, prepare_codes(gate_up), down, shares, chosen, "silu")
    assert normalized_error(ours, reference.experts(x, gate_up, down, shares, chosen, "silu")) < LIMITS["int8"]


def test_formats_without_a_kernel() -> None:
    plain = random_weight(torch.Generator(), COUNT * 32, 64, "float32").stacked(COUNT)
    packed = quantize(plain, Scheme("int4", 4, 32, True, "none"))
    assert prepare_codes(packed) is packed  # for the reference
    with pytest.raises(UserError, match="a scale for each group"):
        prepare_codes(quantize(plain, Scheme("int8", 8, 32, False, "token")))
    assert isinstance(prepare_codes(quantize(plain, Scheme("fp8", 8, 0, False, "token"))).prepared, Codes)


@pytest.mark.parametrize("renormalize", [False, True])
def test_logits_that_are_no_numbers_leave_no_share_and_other_tokens_theirs(renormalize: bool) -> None:
    logits = torch.randn(5, COUNT, generator=torch.Generator().manual_seed(4))
    logits[1, 2], logits[2], logits[3, 0] = torch.nan, torch.nan, torch.inf
    (shares, chosen), (wanted, experts) = (
        route(logits, PER_TOKEN, renormalize) for route in (OURS.route, reference.route)
    )
    assert shares[1:4].isnan().all()
    assert ((chosen >= 0) & (chosen < COUNT)).all()
    torch.testing.assert_close(shares[[0, 4]], wanted[[0, 4]])
    assert torch.equal(chosen[[0, 4]], experts[[0, 4]])
