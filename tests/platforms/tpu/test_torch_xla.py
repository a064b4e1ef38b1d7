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
from anychip.runner.compiled import Shape
from anychip.runner.compiled_runner import CompiledRunner
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


class FewShapes(TpuPlatform):
    """Compiled for two shapes only, because an interpreted kernel takes long to compile."""

    def runner(self, config):
        return CompiledRunner(self, config, self.runtime, lambda plan: [Shape(8, 8, 8), Shape(64, 8, 8)])


def test_attention_in_pallas_interpreted_within_the_step(tmp_path):
    pytest.importorskip("anychip_tpu.pallas.attention")
    before = len(metrics.metric_data("InputOutputAliasCount")[2])
    runner = started(FewShapes(TorchXla(0, "CPU", tmp_path), "pallas"), dtype="float32")
    assert "attention: Pallas, interpreted" in runner.platform.notes()
    programs = [aliased for _, aliased in metrics.metric_data("InputOutputAliasCount")[2]][before:]
    assert programs.count(2 * LAYERS) >= 3, "two shapes and the worst step update their caches in place"
    wanted = continuation(started(ReferencePlatform(), dtype="float32"), 1, prompt(19), 8)
    assert continuation(runner, 1, prompt(19), 8) == wanted
    assert runner._compiler.host_ops() == ()


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
