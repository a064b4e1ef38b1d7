"""The runtime of TorchTPU, as far as it goes without a TPU: imported, refused by name, its way of compiling tried."""

import importlib.util

import pytest
import torch
from tests.runner.compiling import Compiling
from tests.runner.driver import admit, batch, prompt, run, started

from anychip.config import make_config
from anychip.errors import UserError
from anychip.runner.compiled import Shape
from anychip_tpu.choose import open_runtime
from anychip_tpu.probe import look
from anychip_tpu.torch_tpu import compiled_by, held_bytes

needs_torch_tpu = pytest.mark.skipif(
    importlib.util.find_spec("torch_tpu") is None, reason="TorchTPU has an environment of its own: ci/lane_tpu.sh"
)


class Traced:
    """Compiles by torch.compile as TorchTPU does, to a graph that runs as it is."""

    device = torch.device("cpu")

    def __init__(self):
        self.graphs = []

    def compile(self, program):
        def backend(graph, inputs):
            self.graphs.append(graph)
            return graph.forward

        return compiled_by(backend, program)

    def synchronize(self):
        pass

    def compilations(self):
        return len(self.graphs)


def test_a_whole_step_is_one_graph_of_torch_compile():
    platform, plain = Compiling(lambda plan: [Shape(64, 8, 8)]), Compiling()
    platform.compiler = Traced()
    runner, other = started(platform, dtype="float32"), started(plain, dtype="float32")
    assert platform.compiler.compilations() == 4, "the worst step, one shape, scoring, copying blocks"
    made = batch([(0, prompt(9), 0)], [admit(0, prompt(9))])
    assert run(runner, made).token_ids.tolist() == run(other, made).token_ids.tolist()


def test_tensors_on_a_device_are_counted_once():
    device = torch.device("cpu")
    before = held_bytes(device)
    held = torch.zeros(1 << 20)
    views = [held[:5], held.view(1024, 1024)]
    assert 4 << 20 <= held_bytes(device) - before < 5 << 20, views


@needs_torch_tpu
def test_without_a_tpu_it_is_refused():
    assert "torch-tpu" in look().runtimes
    with pytest.raises(UserError, match="No TPU was found"):
        open_runtime(0, make_config({"runtime": "torch-tpu"}, {}))


@needs_torch_tpu
def test_what_is_used_of_it_exists():
    from torch_tpu._internal.device import _device_module

    module = _device_module.get_device_module("tpu")
    for name in ("_get_cache_misses", "get_device_name", "get_device_properties", "set_device", "synchronize"):
        assert callable(getattr(module, name))
