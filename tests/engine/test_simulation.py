"""Anything may happen to the scheduler at any moment; every sequence still gets what it would get alone."""

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.harness import Harness
from tests.engine.plans import make_plan, submit

from anychip.engine.batch import RowSampling
from anychip.engine.scheduler import Policy

LENGTH = 40

_logprobs = st.sampled_from([None, None, 0, 2])
_samplings = st.builds(
    RowSampling,
    seed=st.sampled_from([0, 0, 0, 1]),
    logprobs=_logprobs,
    prompt_logprobs=_logprobs,
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
)
_submits = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 20),
        "own": st.lists(st.integers(0, 2), max_size=8),
        "max_tokens": st.one_of(st.integers(0, 3), st.integers(0, LENGTH), st.just(LENGTH)),
        "priority": st.integers(0, 3),
        "sampling": _samplings,
        "stop_ids": st.sampled_from([(), (), (3,), (1, 3)]),
        "eos_ids": st.sampled_from([(), (3,)]),
    }
)
_events = st.one_of(
    st.tuples(st.just("add"), _submits),
    st.tuples(st.just("burst"), _submits),
    st.tuples(st.just("tick"), st.integers(1, 6)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("reset"), st.none()),
)


@st.composite
def _plans(draw):
    size = draw(st.sampled_from([1, 2, 4]))
    least = LENGTH // size
    blocks = st.sampled_from([least, least + 1, 3 * least // 2, 3 * least]).map(lambda usable: usable + 1)
    return make_plan(
        *draw(st.lists(blocks, min_size=1, max_size=2)),
        block_size=size,
        max_num_seqs=draw(st.sampled_from([1, 3, 8])),
        max_model_len=LENGTH,
        budget=draw(st.sampled_from([2, 5, 16, 64])),
    )


def _message(handle, fields):
    prompt = ([1, 0, 1, 2] * 5)[: fields["shared"]] + fields["own"] or [2]
    rest = {name: fields[name] for name in ("priority", "sampling", "stop_ids", "eos_ids")}
    return submit(handle, prompt, min(fields["max_tokens"], LENGTH - len(prompt)), **rest)


def _play(harness, events):
    for what, value in events:
        if what == "add":
            harness.add(_message(len(harness.sequences), value))
        elif what == "burst":
            count = len(harness.sequences)
            harness.add(*(_message(count + more, value) for more in range(4)))
        elif what == "abort":
            harness.scheduler.abort([value])
        elif what == "reset":
            harness.scheduler.reset_prefix_cache()
        else:
            for _ in range(value):
                harness.tick()
    harness.drain()
    for handle in harness.sequences:
        harness.check(handle)


@given(
    plan=_plans(),
    policy=st.builds(Policy, prefix_caching=st.booleans(), by_priority=st.booleans()),
    depth=st.integers(1, 3),
    fail_every=st.sampled_from([0, 0, 0, 11]),
    events=st.lists(_events, min_size=1, max_size=60),
)
def test_every_sequence_gets_what_it_would_get_alone(plan, policy, depth, fail_every, events):
    def fails(seed, step, row):
        return fail_every and (step * 7 + row * 3) % fail_every == 0

    _play(Harness(plan, policy, depth, fails), events)
