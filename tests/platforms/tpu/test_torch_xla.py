"""The runtime of torch-xla, on PJRT's processor device."""

import pytest

pytest.importorskip("torch_xla", reason="torch-xla has an environment of its own: ci/lane_tpu.sh")

import numpy as np
import torch
from tests.runner.driver import GREEDY, ROWS, admit, batch, continuation, prompt, run, started
from torch_xla.debug import metrics

from anychip import LLM, SamplingParams
from anychip.engine.batch import RowSampling
from anychip.reference.platform import ReferencePlatform
from anychip.runner.shapes import shapes_up_to
from anychip_tpu.platform import TpuPlatform
from anychip_tpu.torch_xla import TorchXla, out_of_memory

LAYERS = 2
PROMPTS = ["The capital of France is", "Once upon a time", "1, 2, 3,"]


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """The tiny model on the processor device."""
    return started(TpuPlatform(TorchXla(0, "CPU", tmp_path_factory.mktemp("cache"))), dtype="float32")


def test_every_step_updates_the_caches_in_place(runner):
    _, _, programs = metrics.metric_data("InputOutputAliasCount")
    whole = [aliased for _, aliased in programs if aliased == 2 * LAYERS]
    assert len(whole) >= len(shapes_up_to(runner._plan)), "a key and a value cache of each layer"


def test_no_operator_runs_on_the_host(runner):
    run(runner, batch([(0, prompt(9), 0)], [admit(0, prompt(9))], (0,)))
    assert runner._compiler.host_ops() == ()


def test_a_step_that_reads_a_value_on_the_host_is_refused(runner):
    program = runner._compiler.compile(lambda packed: (packed[: int(packed.sum())],))
    with pytest.raises(RuntimeError):
        program(runner.platform.send(np.ones(4, np.int32)))


@pytest.mark.parametrize("sampling", [GREEDY, RowSampling(seed=7, temperature=0.8, top_p=0.9)], ids=["greedy", "top_p"])
def test_tokens_are_those_of_the_reference(runner, sampling):
    wanted = continuation(started(ReferencePlatform(), dtype="float32"), 1, prompt(19), 8, sampling)
    assert continuation(runner, 1, prompt(19), 8, sampling) == wanted


def test_nothing_is_compiled_while_serving(runner):
    made = runner._compiler.compilations()
    for rows in range(1, ROWS + 1):
        parts = [(row, prompt(1 + 3 * row), 0) for row in range(rows)]
        run(runner, batch(parts, [admit(row, ids) for row, ids, _ in parts], tuple(range(ROWS))))
    assert runner._compiler.compilations() == made


def test_too_little_memory_is_torchs_own_exception():
    with pytest.raises(torch.OutOfMemoryError), out_of_memory():
        raise RuntimeError("RESOURCE_EXHAUSTED: Attempting to reserve 3 GiB")


@pytest.mark.timeout(1200)  # thirty layers are compiled for each of a few shapes
def test_the_demo_model_says_what_the_reference_says():
    options = {"model": "demo", "dtype": "float32", "max_model_len": 128, "max_num_seqs": 4}
    params = SamplingParams(temperature=0.0, max_tokens=16)
    texts = []
    for device, runtime in (("tpu", "torch-xla-cpu"), ("reference", "auto")):
        with LLM(device=device, runtime=runtime, max_num_batched_tokens=16, **options) as llm:
            texts.append([output.outputs[0].text for output in llm.generate(PROMPTS, params, use_tqdm=False)])
            made = llm.engine.info.compilations
            assert (made > 0) == (device == "tpu")
            print(f"{device}: {made} compilations")
    assert texts[0] == texts[1]
