"""Steps run as programs: the same numbers, bit for bit, as with an operator called at a time.

A program says which operators run, which is the same in all variants of the library: the best and the plainest will do.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.platforms.cpu.native import VARIANTS, native_library
from tests.runner.driver import BLOCK, BLOCKS_A_ROW, CONFIG, ROWS, admit, batch, options, prompt, run

from anychip.engine.batch import Masks, RowSampling
from anychip.engine.sizing import group_layers
from anychip.plugin.contract import KVGroup, KVPlan, Late, ModelSource
from anychip.runner.inputs import uploading
from anychip_cpu.native.library import Search
from anychip_cpu.native.notes import Notes
from anychip_cpu.native.program import NotedSteps, Program, Repeated
from anychip_cpu.platform import CpuPlatform

SHAPE = {**CONFIG, "hidden_size": 96, "intermediate_size": 64, "head_dim": 16}
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 7},
    "windows by layer": {"model_type": "qwen3", "layer_types": ["sliding_attention", "full_attention"]}
    | {"sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1},
}
LOADS = {
    "bfloat16": {"dtype": "bfloat16"},
    "float32": {"dtype": "float32"},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
    "int8 cache": {"kv_cache_dtype": "int8"},
}
LOGPROBS = RowSampling(seed=0, temperature=0.0, logprobs=5)
RANDOM = RowSampling(seed=7, temperature=0.9, top_p=0.9, logprobs=5)
PENALIZED = RowSampling(seed=0, temperature=0.0, presence_penalty=1.5, logprobs=5)


class Plain(CpuPlatform):
    """An operator at a time."""

    def compile(self, step, plan):
        return uploading(step, self.send)


class Noted(CpuPlatform):
    """As it is, and lets the test see."""

    def compile(self, step, plan):
        self.steps = super().compile(step, plan)
        return self.steps


@pytest.fixture(scope="module", params=[*VARIANTS[:1], *VARIANTS[1:][-1:]])
def search(request):
    return Search(native_library(request.param), request.param)


def started(platform, load, **config):
    """A runner of a tiny model, with a block table for each of its KV groups."""
    runner = platform.runner(options(platform, block_size=BLOCK, **load))
    family = {**SHAPE, "model_type": "llama", **config}
    torch.manual_seed(0)
    specs = runner.load(ModelSource("tiny", None, "safetensors", family, {}), lambda what, done, total: None).kv_specs
    groups = tuple(KVGroup(spec, layers, ROWS * BLOCKS_A_ROW + 1) for spec, layers in group_layers(specs))
    runner.start(KVPlan(groups, BLOCK, ROWS, 128, 64))
    return runner


def steps_of(runner, sampling):
    """Chunks, ragged decoding, prompts beside it, a row that is preempted and comes back in another place."""
    groups = len(runner._plan.groups)

    def go(parts, admitted=(), retired=(), unfinished=()):
        made = batch(parts, [admit(row, ids, sampling, output) for row, ids, output in admitted], retired)
        samples = ~np.isin(made.rows, unfinished)
        made = replace(made, logits_at=made.logits_at[samples], targets=made.targets[samples])
        return run(runner, replace(made, block_tables=made.block_tables * groups))

    first, second, third = prompt(5, 4), prompt(33, 5), prompt(9, 6)
    tokens = {1: list(first), 3: list(second), 2: list(third)}
    seen = []

    def note(result):
        for row, token in zip(result.rows.tolist(), result.token_ids.tolist(), strict=True):
            tokens[row].append(token)
        seen.append(result)

    def newest(*rows):
        return [(row, tokens[row][-1:], len(tokens[row]) - 1) for row in rows]

    note(go([(1, first, 0)], [(1, first, [])]))
    note(go([(3, second[:17], 0), *newest(1)], [(3, second, [])], unfinished=[3]))
    note(go([(3, second[17:], 17), *newest(1), (2, third, 0)], [(2, third, [])]))
    note(go(newest(1, 2, 3)))
    note(go(newest(2, 1)))
    tokens[5] = tokens.pop(3)
    note(go([(5, tokens[5], 0), *newest(1)], [(5, tokens[5][:33], tokens[5][33:])], retired=(3,)))
    for _ in range(3):
        note(go(newest(1, 2, 5)))
    return seen


def assert_same(given, wanted):
    for one, other in zip(given, wanted, strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert (one.logprobs is None) == (other.logprobs is None)
        if one.logprobs is not None:
            np.testing.assert_array_equal(one.logprobs.values, other.logprobs.values)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_computes_what_its_operators_do(search, family, load):
    if family != "llama" and load in ("float32", "int4"):
        pytest.skip("the way a weight is kept and the family have nothing to do with each other; llama has all of them")
    config = {"model_type": family, **FAMILIES[family]} if "model_type" not in FAMILIES[family] else FAMILIES[family]
    for sampling in (LOGPROBS, RANDOM):
        platform = Noted(search)
        given = steps_of(started(platform, LOADS[load], **config), sampling)
        assert_same(given, steps_of(started(Plain(search), LOADS[load], **config), sampling))
    kinds = platform.steps.programs
    assert len(kinds) >= 3 and None not in kinds.values()


def test_greedy_rows_are_chosen_in_the_program_and_edited_ones_after_it(search):
    for sampling, chosen in ((RowSampling(seed=0, temperature=0.0), True), (PENALIZED, False)):
        platform = Noted(search)
        given = steps_of(started(platform, LOADS["bfloat16"]), sampling)
        assert_same(given, steps_of(started(Plain(search), LOADS["bfloat16"]), sampling))
        # The first batch of all, which warms up, is greedy.
        assert any(greedy for greedy, _, everywhere in platform.steps.programs if not everywhere) == chosen


def decoded_again(runner, steps=10, masked=6):
    """Tokens of greedy steps of one batch whose arrays advance; in one of them a row may only sample token 3."""
    texts = {1: prompt(5, 4), 3: prompt(30, 5)}
    last = run(runner, batch([(row, ids, 0) for row, ids in texts.items()], [admit(row, texts[row]) for row in texts]))
    made = batch([(row, [token], len(texts[row])) for row, token in zip(texts, last.token_ids.tolist(), strict=True)])
    wider = np.hstack([made.block_tables[0], np.full((len(texts), 3), -1, np.int32)])
    made = replace(made, block_tables=(wider[:, :BLOCKS_A_ROW],))  # a part of a table, as the scheduler's are
    only = np.array([1 << 3] + [0] * (-(-runner.model.vocab_size // 32) - 1), np.int32)
    seen = []
    for step in range(steps):
        late = Late(Masks(np.array([3], np.int32), only[None])) if step == masked else None
        made.token_ids[:] = runner.submit(made).finish(late).result().token_ids
        made.positions[:] += 1
        made.seq_lens[:] += 1
        seen.append(made.token_ids.tolist())
    return seen


@pytest.mark.parametrize("load", ["bfloat16", "int8"])
def test_a_batch_that_comes_again_is_read_where_it_is(search, load):
    runner = started(Noted(search), LOADS[load])
    given = decoded_again(runner)
    assert isinstance(runner._again, Repeated)
    assert given[6][1] == 3
    assert given == decoded_again(started(Plain(search), LOADS[load]))


def test_what_goes_wrong_in_a_batch_that_comes_again_is_said(search):
    runner = started(Noted(search), LOADS["bfloat16"])
    run(runner, batch([(0, prompt(5), 0)], [admit(0, prompt(5))]))
    made = batch([(0, [1], 5)])
    for _ in range(2):
        run(runner, made)
    made.token_ids[:] = 10**6
    with pytest.raises(RuntimeError, match="an index is out of range"):
        run(runner, made)


def test_a_mixture_of_experts_stays_unrecorded(search, caplog):
    config = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    platform = Noted(search)
    with caplog.at_level("INFO", logger="anychip"):
        given = steps_of(started(platform, LOADS["bfloat16"], **config), LOGPROBS)
    assert set(platform.steps.programs.values()) == {None}
    assert "operator by operator, because of aten" in caplog.text
    assert_same(given, steps_of(started(Plain(search), LOADS["bfloat16"], **config), LOGPROBS))


class Stubborn(CpuPlatform):
    """Its forward pass does something that a program would do wrong: what is made of a batch is no constant."""

    spoil = staticmethod(lambda inputs, library: None)

    def compile(self, step, plan):
        library = self._native.library

        def forward(inputs):
            type(self).spoil(inputs, library)
            return step(inputs)

        self.steps = super().compile(forward, plan)
        return self.steps


def _number_of_the_batch(inputs, library):
    library.ops.gate.default(torch.ones(1, 64), len(inputs.rows) % 2)


def _array_of_the_batch(inputs, library):
    library.ops.gate.default(torch.from_numpy(np.full((1, 64), len(inputs.rows), np.float32)), 0)


@pytest.mark.parametrize("spoil", [_number_of_the_batch, _array_of_the_batch])
def test_what_depends_on_the_batch_other_than_through_its_arrays_makes_no_program(search, spoil):
    platform = type("Spoiled", (Stubborn,), {"spoil": staticmethod(spoil)})(search)
    given = steps_of(started(platform, LOADS["bfloat16"]), LOGPROBS)
    assert set(platform.steps.programs.values()) == {None}
    assert_same(given, steps_of(started(Plain(search), LOADS["bfloat16"]), LOGPROBS))


def test_the_comparison_would_see_a_program_that_is_off(search):
    platform = Noted(search)
    runner = started(platform, LOADS["bfloat16"])
    wanted = steps_of(started(Plain(search), LOADS["bfloat16"]), LOGPROBS)
    steps_of(runner, LOGPROBS)

    def off(inputs):
        return kept([inputs[0], inputs[1] + 1, *inputs[2:]])

    kind, kept = next((kind, made) for kind, made in platform.steps.programs.items() if not kind[0] and kind[2])
    platform.steps.programs[kind] = off
    with pytest.raises(AssertionError):
        assert_same(steps_of(runner, LOGPROBS), wanted)


def test_a_program_gives_back_what_it_keeps_and_refuses_what_it_is_not_made_for(search):
    library = search.library
    x = torch.randn(3, 64)
    with Notes(f"anychip_cpu_{library.variant.name}", [x]) as notes:
        gated = library.ops.gate.default(x, 0)
        normed = library.ops.rms_norm.default(gated, torch.ones(32), 1e-5)
    program = Program(library, notes.calls, notes.words_of([normed]))
    other = torch.randn(5, 64)
    expected = library.ops.rms_norm.default(library.ops.gate.default(other, 0), torch.ones(32), 1e-5)
    assert torch.equal(program([other])[0], expected)
    with pytest.raises((RuntimeError, IndexError)):
        program([])
    number = program._number
    with pytest.raises(RuntimeError, match="no operator of that name"):
        library.ops.note_call.default(number, "pack", [], [], [])
    del program
    with pytest.raises(RuntimeError, match="a number that nothing has"):
        library.ops.run_program.default(number, [other])


def test_notes_name_what_is_no_operator_of_the_library(search):
    x = torch.randn(2, 64)
    with Notes(f"anychip_cpu_{search.library.variant.name}", [x]) as notes:
        y = x + 1
    assert notes.stranger == "aten.add.Tensor" and not notes.calls
    assert notes.words_of([x]) == [2, 0] and notes.words_of([y]) is None


def test_steps_without_a_library_are_uploaded():
    assert not isinstance(CpuPlatform().compile(lambda inputs: None, None), NotedSteps)
