import numpy as np
import pytest
import torch
from tests.sample.naive import LOGIT_OPS, ReferenceOps, admitted, distribution, edited

from anychip.engine.batch import Masks
from anychip.sample.sampler import Sampler
from anychip.sample.send import plain_send
from anychip.sample.state import BYTES_EDITED, SamplerState, most_bytes
from anychip.sample.take import NOT_FINITE, NOTHING_LEFT

VOCAB = 331
ROWS = 8


def new_sampler(*rows):
    state = SamplerState(ROWS, VOCAB, torch.device("cpu"), plain_send(torch.device("cpu")))
    sampler = Sampler(state, ReferenceOps(), LOGIT_OPS, torch.zeros(ROWS, dtype=torch.int32))
    sampler.state.admit(rows)
    return sampler


def step(sampler, rows, logits, positions, masks=None):
    plan = sampler.plan(np.array(rows, np.int32))
    return sampler.sample(plan, logits.clone(), torch.tensor(positions, dtype=torch.int32), masks)


def masks_of(allowed):
    """The masks that allow {row: tokens}."""
    flags = np.zeros((len(allowed), -(-VOCAB // 32) * 32), np.uint8)
    for line, tokens in zip(flags, allowed.values(), strict=True):
        line[tokens] = 1
    return Masks(np.array(list(allowed), np.int32), np.packbits(flags, axis=1, bitorder="little").view(np.int32))


def random_logits(rows, seed=0, scale=3.0):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale


def generate(sampler, row, prompt_length, steps, start=0, seed=100):
    """Tokens of one row from logits that depend on the position alone."""
    tokens = []
    for i in range(start, start + steps):
        sampled = step(sampler, [row], random_logits(1, seed + i), [prompt_length + i])
        tokens.append(int(sampled.token_ids))
    return tokens


FIELDS = [
    {},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.1},
    {"presence_penalty": -2.0, "frequency_penalty": -0.5},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 0.5, "presence_penalty": 0.3, "frequency_penalty": 0.4},
    {"logit_bias": ((3, 5.0), (7, -100.0))},
    {"allowed_token_ids": (1, 2, 3, 50, 330)},
    {"bad_words": ((5,), (1, 9), (2, 3, 12))},
    {"min_tokens": 4, "stop_token_ids": (0, 17)},
    {
        "allowed_token_ids": tuple(range(60)),
        "bad_words": ((1, 2),),
        "min_tokens": 3,
        "stop_token_ids": (4,),
        "logit_bias": ((4, 50.0),),
        "repetition_penalty": 1.3,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
    },
]
PROMPT, OUTPUT = [5, 5, 9, 2, 2, 3], [7, 1, 7]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_step_follows_the_naive_float64_sampler(fields, temperature):
    row = admitted(prompt=PROMPT, output=OUTPUT, prompt_length=6, temperature=temperature, **fields)
    sampler, output = new_sampler(row), list(OUTPUT)
    for i in range(12):
        logits = random_logits(1, seed=i)
        logits[0, [7, 1, 9, 12]] += 5.0
        expected = edited(logits[0].double().numpy(), row, output)
        token = int(step(sampler, [0], logits, [6 + len(output)]).token_ids)
        if temperature == 0.0:
            assert token == int(expected.argmax())
        else:
            assert distribution(expected, row.sampling)[token] > 0
        output.append(token)


def test_a_drawn_row_with_everything_on_has_the_naive_distribution():
    fields = {**FIELDS[-1], "temperature": 0.9, "top_k": 12, "top_p": 0.95, "min_p": 0.01, "prompt_length": 6}
    rows = [admitted(row, PROMPT, OUTPUT, seed=0, **fields) for row in range(ROWS)]
    logits, counts, rounds = random_logits(1, scale=1.5), np.zeros(VOCAB), 400
    expected = distribution(edited(logits[0].double().numpy(), rows[0], OUTPUT), rows[0].sampling)
    for seed in range(rounds):
        rows = [admitted(row, PROMPT, OUTPUT, seed=seed * ROWS + row, **fields) for row in range(ROWS)]
        sampled = step(new_sampler(*rows), range(ROWS), logits.expand(ROWS, -1), [9] * ROWS)
        counts += np.bincount(sampled.token_ids.numpy(), minlength=VOCAB)
    assert (counts[expected == 0] == 0).all()
    kept = expected > 0
    wanted = expected[kept] * rounds * ROWS
    assert ((counts[kept] - wanted) ** 2 / wanted).sum() < kept.sum() + 5 * (2 * kept.sum()) ** 0.5


def test_repetition_sees_the_prompt_but_presence_and_frequency_do_not():
    logits = torch.zeros(1, VOCAB)
    logits[0, 5], logits[0, 8] = 10.0, 9.9
    plain = step(new_sampler(admitted(prompt=[5, 5], temperature=0.0)), [0], logits, [2])
    for field, token in (("presence_penalty", 5), ("frequency_penalty", 5), ("repetition_penalty", 8)):
        row = admitted(prompt=[5, 5], temperature=0.0, **{field: 2.0})
        assert int(step(new_sampler(row), [0], logits, [2]).token_ids) == token
    assert int(plain.token_ids) == 5


@pytest.mark.parametrize(
    ("field", "value"), [("presence_penalty", 2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 2.0)]
)
def test_a_penalty_makes_the_row_leave_its_favourite(field, value):
    logits = torch.zeros(1, VOCAB)
    logits[0, 5], logits[0, 8] = 10.0, 9.0
    sampler = new_sampler(admitted(prompt=[1], temperature=0.0, **{field: value}))
    assert [int(step(sampler, [0], logits, [1 + i]).token_ids) for i in range(2)] == [5, 8]


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_exactly_min_tokens_ordinary_tokens_come_before_a_forced_end(min_tokens):
    end = 17
    sampler = new_sampler(
        admitted(
            prompt_length=5,
            temperature=0.0,
            min_tokens=min_tokens,
            stop_token_ids=(end,),
            logit_bias=((end, 100.0),),
        )
    )
    tokens = generate(sampler, 0, 5, 8)
    assert tokens.index(end) == min_tokens


def test_bad_words_span_the_prompt_and_every_length():
    logits = torch.zeros(1, VOCAB)
    logits[0, 9], logits[0, 4] = 5.0, 4.0
    for prompt, words, token in (
        ([1, 2], ((1, 2, 9),), 4),
        ([2], ((1, 2, 9),), 9),
        ([1, 3], ((1, 2, 9),), 9),
        ([1, 2], ((9,), (1, 1, 1, 1, 1, 4)), 4),
        ([2], ((2, 9), (3, 3, 3, 4)), 4),
    ):
        row = admitted(prompt=prompt, temperature=0.0, bad_words=words)
        assert int(step(new_sampler(row), [0], logits, [len(prompt)]).token_ids) == token


def test_a_longer_bad_word_of_another_row_keeps_the_tails_of_the_first():
    logits = torch.zeros(1, VOCAB)
    logits[0, 9], logits[0, 4] = 5.0, 4.0
    sampler = new_sampler(admitted(0, [1, 2], temperature=0.0, bad_words=((2, 9),)))
    sampler.state.admit([admitted(1, [7, 1, 2], temperature=0.0, bad_words=((7, 1, 2, 9),))])
    tokens = step(sampler, [1, 0], logits.expand(2, -1), [3, 2]).token_ids
    assert tokens.tolist() == [4, 4]
    assert step(sampler, [0, 1], logits.expand(2, -1), [3, 4]).token_ids.tolist() == [9, 9]


def test_a_row_samples_the_same_alone_elsewhere_and_among_others():
    fields = {"temperature": 1.0, "top_p": 0.9, "seed": 11, "prompt_length": 3}
    alone = generate(new_sampler(admitted(2, **fields)), 2, 3, 10)
    elsewhere = generate(new_sampler(admitted(7, **fields)), 7, 3, 10)
    others = [
        admitted(0, [1], temperature=0.0, presence_penalty=1.0),
        admitted(1, temperature=0.7, top_k=4, seed=11),
        admitted(3, temperature=1.5, min_p=0.1, logit_bias=((1, 5.0),)),
        admitted(4, temperature=1.0, logprobs=2),
    ]
    sampler = new_sampler(*others, admitted(2, **fields))
    among = []
    for i in range(10):
        logits = random_logits(5, seed=1000 + i)
        logits[3] = random_logits(1, 100 + i)[0]
        among.append(int(step(sampler, [4, 0, 3, 2, 1], logits, [9, 9, 9, 3 + i, 9]).token_ids[3]))
    assert alone == elsewhere == among


@pytest.mark.parametrize("fields", [{}, *FIELDS[1:6], FIELDS[8], FIELDS[10]], ids=str)
def test_preempted_and_resumed_equals_uninterrupted(fields):
    fields = {**fields, "temperature": 1.0, "top_k": 50, "seed": 5}
    whole = generate(new_sampler(admitted(0, PROMPT, **fields)), 0, 6, 12)
    sampler = new_sampler(admitted(0, PROMPT, **fields))
    begun = generate(sampler, 0, 6, 5)
    sampler.state.retire([0])
    sampler.state.admit([admitted(1, PROMPT, [3], **fields), admitted(3, PROMPT, begun, **fields)])
    assert begun + generate(sampler, 3, 6, 7, start=5) == whole


@pytest.mark.parametrize("fields", [*FIELDS, {"logprobs": 0}], ids=str)
def test_whether_all_take_the_highest_is_known_before_there_is_a_plan(fields):
    for temperature in (0.0, 1.0):
        sampler = new_sampler(
            admitted(2, PROMPT, temperature=0.0), admitted(5, PROMPT, **{**fields, "temperature": temperature})
        )
        for rows in (np.array([2], np.int32), np.array([2, 5], np.int32)):
            assert sampler.takes_highest(rows) == sampler.plan(rows).takes_highest
    assert sampler.takes_highest(rows[:1])
    assert not sampler.takes_highest(rows)


def test_a_row_used_again_keeps_nothing_of_its_former_request():
    strong = {"presence_penalty": 2.0, "bad_words": ((3,),), "min_tokens": 50, "stop_token_ids": (1,)}
    sampler = new_sampler(admitted(0, [1], temperature=0.0, logit_bias=((9, 100.0),), **strong))
    generate(sampler, 0, 1, 3)
    sampler.state.admit([admitted(0, temperature=0.0)])
    assert generate(sampler, 0, 0, 5) == [int(random_logits(1, 100 + i).argmax()) for i in range(5)]


def test_seeds_differ_and_repeat():
    def tokens(seed):
        return generate(new_sampler(admitted(0, temperature=1.0, seed=seed)), 0, 0, 20)

    assert tokens(42) == tokens(42)
    assert len({tuple(tokens(seed)) for seed in (42, 43, -42, 2**62, 0)}) == 5


def test_a_broken_row_does_not_touch_the_others():
    logits = random_logits(5)
    logits[0, 3], logits[2] = float("nan"), float("inf")
    rows = [
        admitted(row, temperature=1.0 * (row % 2), allowed_token_ids=(1,) if row == 3 else None, seed=row)
        for row in range(5)
    ]
    stop = admitted(3, temperature=1.0, allowed_token_ids=(1,), stop_token_ids=(1,), min_tokens=4)
    got = step(new_sampler(*rows[:3], stop, rows[4]), range(5), logits, [0] * 5).token_ids.tolist()
    assert [got[0], got[2], got[3]] == [NOT_FINITE, NOT_FINITE, NOTHING_LEFT]
    assert got[4] == int(logits[4].argmax())
    assert got[1] >= 0


def test_a_grammar_mask_leaves_only_what_it_allows():
    logits = random_logits(2)
    sampler = new_sampler(admitted(0, temperature=0.0), admitted(1, temperature=1.0))
    tokens = step(sampler, [0, 1], logits, [0, 0], masks_of({1: [11, 12]})).token_ids.tolist()
    assert tokens[0] == int(logits[0].argmax())
    assert tokens[1] in (11, 12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_are_of_the_raw_logits(dtype):
    logits = random_logits(3).to(dtype)
    sampler = new_sampler(
        admitted(0, temperature=0.0, logit_bias=((8, 100.0),), logprobs=4),
        admitted(1, temperature=1.0, logprobs=0),
        admitted(2, temperature=0.0),
    )
    sampled = step(sampler, [0, 1, 2], logits, [0, 0, 0])
    expected = torch.log_softmax(logits.double(), -1)
    scores = sampled.logprobs
    assert sampled.token_ids[0] == 8
    assert scores.token_ids.shape == (3, 5)
    for i, token in enumerate(sampled.token_ids.tolist()):
        assert scores.token_ids[i, 0] == token
        assert scores.values[i].tolist() == pytest.approx(expected[i, scores.token_ids[i].long()].tolist(), abs=1e-5)
        assert scores.ranks[i] == (expected[i] > expected[i, token]).sum() + 1
        assert scores.values[i, 1:].tolist() == pytest.approx(expected[i].topk(4).values.tolist(), abs=1e-5)


def test_steady_rows_keep_their_plan():
    sampler = new_sampler(admitted(0), admitted(1))
    rows = np.array([0, 1], np.int32)
    plan = sampler.plan(rows)
    assert sampler.plan(rows.copy()) is plan
    assert sampler.plan(rows[:1]) is not plan
    sampler.state.admit([admitted(2)])
    assert sampler.plan(rows[:1]).version == sampler.state.version


def test_penalties_take_memory_only_when_used():
    sampler = new_sampler(*(admitted(row, temperature=1.0, top_p=0.5) for row in range(ROWS)))
    assert sampler.state.counts.output.numel() == 0
    sampler.state.admit([admitted(row, [1], presence_penalty=1.0) for row in range(ROWS)])
    held = sampler.state.counts.output.numel()
    for _ in range(3):
        sampler.state.retire(list(range(ROWS)))
        sampler.state.admit([admitted(row, [1], presence_penalty=1.0) for row in range(ROWS)])
    assert sampler.state.counts.output.numel() == held


def test_counts_take_what_is_planned_for_them():
    asking = [admitted(row, [1], presence_penalty=1.0) for row in range(ROWS)]
    counts = new_sampler(*asking).state.counts
    assert counts.output.nbytes + counts.seen.nbytes == most_bytes(ROWS, VOCAB) - ROWS * VOCAB * BYTES_EDITED
