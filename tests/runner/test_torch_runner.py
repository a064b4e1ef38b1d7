from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.runner.driver import (
    BLOCKS_A_ROW,
    CONFIG,
    ROWS,
    admit,
    batch,
    continuation,
    options,
    prompt,
    run,
    source,
    started,
)
from torch import nn

from anychip.engine.batch import NOTHING_ALLOWED, PENDING, BlockCopy, RowSampling
from anychip.errors import UserError
from anychip.models.layers import Linear
from anychip.reference.platform import ReferencePlatform
from anychip.runner.captured import CapturedSteps, Sizes
from anychip.runner.results import BROKEN_LOGITS
from anychip.weights.scheme import formats_of
from anychip_cpu.platform import CpuPlatform


class Captured(ReferencePlatform):
    """Runs decoding steps from memory that never moves; what is recorded is simply called again."""

    sizes = Sizes(single=(1, 2, 4))

    def compile(self, step, plan):
        self.captured = CapturedSteps(
            step, plan, self.device, self.send, lambda run: run, super().compile(step, plan), self.sizes
        )
        return self.captured


PLATFORMS = (ReferencePlatform, CpuPlatform, Captured)


@pytest.fixture(scope="module", params=PLATFORMS, ids=lambda kind: kind.__name__)
def runner(request):
    runner = started(request.param(), dtype="float32")
    yield runner
    runner.close()


def test_platforms_agree():
    tokens = []
    for platform in (kind() for kind in PLATFORMS):
        tokens.append(continuation(started(platform, dtype="float32"), 0, prompt(20), 12))
    assert tokens[0] == tokens[1]


def test_pending_tokens_never_leave_the_device(runner):
    ids = [prompt(9, seed) for seed in (1, 2, 3)]
    alone = [continuation(runner, 0, one, 6) for one in ids]
    rows = (4, 1, 2)
    made = batch(
        [(row, one, 0) for row, one in zip(rows, ids, strict=True)],
        [admit(row, one) for row, one in zip(rows, ids, strict=True)],
        [0],
    )
    results = [run(runner, made)]
    for i in range(5):
        order = rows if i % 2 else rows[::-1]
        results.append(run(runner, batch([(row, [PENDING], 9 + i) for row in order])))
    for row, expected in zip(rows, alone, strict=True):
        assert [int(result.token_ids[result.rows == row][0]) for result in results] == expected


def test_chunks_and_a_decoding_neighbour_change_nothing(runner):
    first, second = prompt(5, 4), prompt(40, 5)
    expected = continuation(runner, 0, second, 1)
    neighbour = continuation(runner, 1, first, 4)
    run(runner, batch([(1, first, 0)], [admit(1, first)], [1]))
    admitted = [admit(3, second)]
    tokens = []
    for begin, end in ((0, 17), (17, 39), (39, 40)):
        position = len(first) + len(tokens)
        made = batch([(3, second[begin:end], begin), (1, [PENDING], position)], admitted)
        result, admitted = run(runner, made), []
        tokens.append(int(result.token_ids[result.rows == 1][0]))
    assert tokens == neighbour[1:]
    assert result.token_ids[result.rows == 3].tolist() == expected


def test_prompt_tokens_are_scored_across_chunks(runner):
    ids = prompt(300 % 90 + 20, 6)
    sampling = RowSampling(seed=0, temperature=0.0, prompt_logprobs=3, logprobs=2)
    whole = run(runner, batch([(0, ids, 0)], [admit(0, ids, sampling)], [0], scored=[0]))
    scores = whole.prompt_logprobs
    assert scores.positions.tolist() == list(range(1, len(ids)))
    assert scores.logprobs.token_ids.shape == (len(ids) - 1, 4)
    assert scores.logprobs.token_ids[:, 0].tolist() == ids[1:]
    assert (np.diff(scores.logprobs.values[:, 1:], axis=1) <= 0).all()
    assert whole.logprobs.values[0, 0] == pytest.approx(whole.logprobs.values[0, 1])
    assert whole.logprobs.ranks.tolist() == [1]


def test_a_batch_without_tokens_admits_and_retires(runner):
    ids = prompt(8, 7)
    expected = continuation(runner, 0, ids, 1)
    result = run(runner, batch([], [admit(5, ids)], [0]))
    assert len(result.rows) == 0
    assert run(runner, batch([(5, ids, 0)])).token_ids.tolist() == expected


def test_blocks_are_copied_before_the_forward(runner):
    ids = prompt(16, 8)
    expected = continuation(runner, 0, ids, 2)[1]
    last = continuation(runner, 0, ids, 1)
    tables = np.arange(1, ROWS * BLOCKS_A_ROW + 1, dtype=np.int32).reshape(ROWS, BLOCKS_A_ROW)
    tables[2, 0] = 40
    made = batch([(2, last, 16)], [admit(2, ids)], copies=[BlockCopy(0, 1, 40)], tables=tables)
    assert run(runner, made).token_ids.tolist() == [expected]


def test_a_row_that_fails_says_why_and_the_others_go_on(runner):
    ids = prompt(6, 9)
    expected = continuation(runner, 0, ids, 1)
    never = RowSampling(seed=0, allowed_token_ids=(5,), stop_token_ids=(5,), min_tokens=3)
    made = batch([(0, ids, 0), (1, ids, 0)], [admit(0, ids), admit(1, ids, never)], [0])
    result = run(runner, made)
    assert result.rows.tolist() == [0]
    assert result.token_ids.tolist() == expected
    assert result.token_start.tolist() == [0, 1]
    assert result.errors == {1: NOTHING_ALLOWED}


@pytest.mark.parametrize("kind", PLATFORMS)
def test_logits_that_are_no_numbers_fail_their_row_only(kind):
    runner = started(kind(), dtype="float32")
    poisoned, healthy = [11] * 5, [3, 4, 5]
    expected = continuation(runner, 0, healthy, 3)
    with torch.inference_mode():
        runner.model.model.embed_tokens.weight[11] = float("nan")
    scoring = RowSampling(seed=0, prompt_logprobs=1, logprobs=1, temperature=0.0)
    made = batch([(0, healthy, 0), (1, poisoned, 0)], [admit(0, healthy), admit(1, poisoned, scoring)], [0], scored=[1])
    result = run(runner, made)
    assert result.errors == {1: BROKEN_LOGITS}
    assert result.rows.tolist() == [0]
    assert len(result.prompt_logprobs.rows) == 0
    # Its blocks hold NaNs now: a row that takes them over must not see them.
    tables = np.arange(1, ROWS * BLOCKS_A_ROW + 1, dtype=np.int32).reshape(ROWS, BLOCKS_A_ROW)
    tables[2] = tables[1]
    tokens = [int(run(runner, batch([(2, healthy, 0)], [admit(2, healthy)], [0, 1], tables=tables)).token_ids[0])]
    for position in (3, 4):
        tokens.append(int(run(runner, batch([(2, [PENDING], position)], tables=tables)).token_ids[0]))
    assert tokens == expected


def test_steps_are_finished_in_order(runner):
    ids = prompt(4, 10)
    step = runner.submit(batch([(0, ids, 0)], [admit(0, ids)], [0]))
    with pytest.raises(AssertionError, match="not finished"):
        runner.submit(batch([]))
    step.finish()
    with pytest.raises(AssertionError, match="twice"):
        step.finish()


def test_loading_reports_progress_and_what_it_found():
    platform, seen = ReferencePlatform(), []
    runner = platform.runner(options(platform))
    info = runner.load(source(torch_dtype="bfloat16"), lambda *report: seen.append(report))
    assert info.dtype == "bfloat16"
    assert (info.vocab_size, info.max_model_len, len(info.kv_specs)) == (97, 128, 2)
    assert info.weight_bytes > 2 * 97 * 48 * 2
    assert "reference for" in info.notes[0]
    assert seen[-1][1] == seen[-1][2] > 0


@pytest.mark.parametrize(
    ("stored", "asked", "expected"),
    [
        ("bfloat16", "auto", "bfloat16"),
        ("float16", "auto", "float32"),
        (None, "auto", "float32"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_the_type_computed_in(stored, asked, expected):
    platform = ReferencePlatform()
    runner = platform.runner(options(platform, dtype=asked))
    assert runner.load(source(dtype=stored), lambda *report: None).dtype == expected


class Capable(ReferencePlatform):
    formats: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def capabilities(self):
        return replace(super().capabilities, weight_formats=self.formats, refused_references=self.refused)


def test_refusals_are_sentences():
    platform = Capable()
    for values in ({}, {"quantization": "int4"}):
        with pytest.raises(UserError, match="Strict kernels"):
            platform.runner(options(platform, strict_kernels=True, **values)).load(source(), lambda *report: None)
    platform.refused = ("linear",)
    with pytest.raises(UserError, match="linear"):
        platform.runner(options(platform)).load(source(), lambda *report: None)
    with pytest.raises(UserError, match="holds safetensors"):
        ReferencePlatform().runner(options(ReferencePlatform(), load_format="gguf")).load(source(), lambda *r: None)


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_what_is_quantized_means_the_same_kept_or_not(quantization):
    tokens, notes, sizes = [], [], []
    for formats in ((), formats_of(quantization)):
        platform = Capable()
        platform.formats = formats
        runner = platform.runner(options(platform, quantization=quantization, dtype="float32"))
        info = runner.load(source(hidden_size=64, intermediate_size=80), lambda *report: None)
        notes.append([note for note in info.notes if note.startswith("quantization")])
        sizes.append(info.weight_bytes)
        kept = {module.weight.quantization is not None for module in linears(runner.model)}
        assert kept == ({False, True} if formats else {False})
        tokens.append(runner.model.logits(torch.ones(1, 64)))
        runner.close()
    torch.testing.assert_close(*tokens)
    assert sizes[1] < sizes[0]
    (plain,), (kept,) = notes
    assert "5 of 9 matrices; 4 stay as they are (a router, or no whole groups of 32 inputs)" in kept
    assert f"no kernels for {quantization}" in plain
    assert "no kernels" not in kept


def linears(model):
    return [module for module in model.modules() if isinstance(module, Linear)]


class _Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *arguments):
        return self.inner(*arguments)


def test_modules_are_offered_from_the_root_down():
    class Lowering(ReferencePlatform):
        def __init__(self):
            super().__init__()
            self.offered = []

        def lower(self, module, spec):
            self.offered.append(type(module).__name__)
            return _Doubled(module) if type(module).__name__ == "GatedMLP" else None

    platform = Lowering()
    runner = started(platform, dtype="float32")
    assert platform.offered[0] == "LlamaModel"
    assert platform.offered.count("GatedMLP") == CONFIG["num_hidden_layers"]
    plain = started(ReferencePlatform(), dtype="float32")
    assert continuation(runner, 0, prompt(9), 3) == continuation(plain, 0, prompt(9), 3)


def test_compile_wraps_the_forward_pass_once():
    class Compiling(ReferencePlatform):
        calls = 0

        def compile(self, step, plan):
            def wrapped(inputs):
                self.calls += 1
                return step(inputs)

            return super().compile(wrapped, plan)

    platform = Compiling()
    runner = started(platform, dtype="float32")
    before = platform.calls
    continuation(runner, 0, prompt(9), 3)
    assert platform.calls == before + 3


def test_two_runners_in_one_process():
    one, two = (started(CpuPlatform(), dtype=dtype) for dtype in ("float32", "float32"))
    alone = continuation(one, 0, prompt(12), 4)
    interleaved = []
    run(one, batch([(0, prompt(12), 0)], [admit(0, prompt(12))], [0]))
    run(two, batch([(0, prompt(30, 1), 0)], [admit(0, prompt(30, 1))], [0]))
    for i in range(3):
        interleaved.append(int(run(one, batch([(0, [PENDING], 12 + i)])).token_ids[0]))
        run(two, batch([(0, [PENDING], 30 + i)]))
    assert interleaved == alone[1:]
