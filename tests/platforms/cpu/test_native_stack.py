"""A decoder stack lowered to one native call says what the layers say one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.models.tiny import truth
from tests.platforms.cpu.native import VARIANTS, native_library

from anychip.models.decoder import DecoderModel
from anychip.models.loading import load_weights
from anychip.models.registry import model_class
from anychip.models.step import StepContext
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.runner.loading import lower_model
from anychip.testing.compare import normalized_error
from anychip_cpu.native.library import Search
from anychip_cpu.native.stack import NativeStack
from anychip_cpu.platform import CpuPlatform

FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 7},
}
HEADS = {"hidden_size": 96, "intermediate_size": 64, "num_attention_heads": 6, "num_key_value_heads": 2}


@pytest.fixture(scope="module", params=VARIANTS)
def platform(request):
    return CpuPlatform(Search(native_library(request.param), request.param))


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request, tmp_path_factory):
    return truth(tmp_path_factory.mktemp(request.param), request.param, **{**HEADS, **FAMILIES[request.param]})


def logits(platform, checkpoint, dtype, lower):
    """[T, V] of all prompts in one step, after another step wrote a part of each."""
    family = model_class(checkpoint.config)
    spec = family.op_spec(checkpoint.config, dtype, 16)
    ops = bind(platform.kernels(spec), spec)
    model = family(checkpoint.config, ops, getattr(torch, dtype))
    assert isinstance(model, DecoderModel)
    load_weights(model, iter(checkpoint.tensors.items()), "cpu", platform.prepare_weight)
    if lower:
        model = lower_model(platform, model, spec)
        assert isinstance(model.model, NativeStack)
    lengths = [len(prompt) for prompt in checkpoint.prompts]
    table, blocks = shuffled_table(torch.Generator().manual_seed(0), lengths, 16)
    caches = tuple(ops.new_cache(one, blocks, 16, "cpu") for one in model.kv_specs)
    halves = [length // 2 for length in lengths]
    first = tuple((0, half) for half in halves)
    rest = tuple((half, length - half) for half, length in zip(halves, lengths, strict=True))
    results = []
    for rows in (first, rest):
        inputs = batch_inputs(rows, table)
        plans = {one: ops.plan_attention(inputs, one, 16) for one in set(model.kv_specs)}
        ids = [prompt[done : done + new] for prompt, (done, new) in zip(checkpoint.prompts, rows, strict=True)]
        step = StepContext(inputs.positions, tuple(plans[one] for one in model.kv_specs), caches)
        with torch.inference_mode():
            hidden = model(torch.tensor(np.concatenate(ids).astype(np.int32)), inputs.positions, step)
            parts = model.logits(hidden).float().split([new for _, new in rows])
            ends = np.cumsum([new for _, new in rows]).astype(np.int32)
            last = np.unique(ends[ends > 0] - 1)
            wanted = replace(step, wanted=torch.from_numpy(last[:-1]))
            some = model(torch.tensor(np.concatenate(ids).astype(np.int32)), inputs.positions, wanted)
            assert len(some) == len(last) - 1
            assert normalized_error(some, hidden[torch.from_numpy(last[:-1]).long()]) < 1e-2
            assert normalized_error(some, hidden[torch.from_numpy(last[1:]).long()]) > 0.1
        results.append(parts)
    return torch.cat([part for pair in zip(*results, strict=True) for part in pair])


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_those_of_transformers(platform, checkpoint, dtype, lower):
    got = logits(platform, checkpoint, dtype, lower)
    expected = torch.cat(checkpoint.logits)
    tolerance = 1e-5 if dtype == "float32" else 3e-2
    assert normalized_error(got, expected) < tolerance
    assert normalized_error(got.roll(1, 0), expected) > 5 * tolerance
