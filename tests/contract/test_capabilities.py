"""Every field of `Capabilities` has a reader in the core: the null platform at two values, and a difference to see."""

import dataclasses
import json
import re
from itertools import count

import numpy as np
import pytest
import torch
from tests.grammar.byte_model import byte_tokenizer, write_byte_model
from torch import distributed

from anychip.config import make_config
from anychip.engine.engine import Engine
from anychip.engine.input import InputProcessor
from anychip.errors import RequestError, UserError
from anychip.plugin import Capabilities, Memory
from anychip.plugin.registry import Registry
from anychip.runner import TorchPlatform
from anychip.sampling_params import SamplingParams
from anychip.testing.tiny_model import write_tiny_model

PLUGIN = """
from anychip.plugin import API_VERSION, Capabilities, Memory, PlatformSpec, Probe, hookimpl
from anychip.testing.null import NullPlatform


@hookimpl
def register_platforms(register):
    open = lambda devices, config: NullPlatform({capabilities})
    register(PlatformSpec(name="{device}", probe=lambda: Probe(-1), open=open, api_version=API_VERSION))
"""
MODEL = {"model_type": "llama", "max_position_embeddings": 512, "vocab_size": 64, "num_hidden_layers": 2}


@pytest.fixture
def engine(plugin, tmp_path):
    """`engine(capabilities, model, **options)` starts one on the null platform with these capabilities."""
    engines, numbers = [], count()

    def start(capabilities, model=MODEL, **options):
        device = f"null{next(numbers)}"
        plugin(f"dummy-{device}", PLUGIN.format(capabilities=repr(capabilities), device=device))
        (tmp_path / "config.json").write_text(json.dumps(model))
        given = {"model": str(tmp_path), "device": device, "load_format": "dummy", "log_level": "error", **options}
        engines.append(Engine(make_config(given, {}), lambda what, done, total: None))
        return engines[-1]

    yield start
    for each in engines:
        each.close()


class Wide(TorchPlatform):
    """The reference's ops under capabilities of the test's choice."""

    def __init__(self, capabilities):
        self._capabilities = capabilities

    @property
    def capabilities(self):
        return self._capabilities

    @property
    def device(self):
        return torch.device("cpu")

    def memory(self):
        return Memory(2**30, 2**30)

    def synchronize(self):
        pass


def check_dtypes(engine):
    assert engine(Capabilities(dtypes=("bfloat16", "float32"))).info.dtype == "bfloat16"
    with pytest.raises(UserError, match="bfloat16"):
        engine(Capabilities(dtypes=("float32",)), dtype="bfloat16")


def check_block_sizes(engine):
    assert engine(Capabilities(block_sizes=(32, 16))).info.block_size == 32
    with pytest.raises(UserError, match="block size 32"):
        engine(Capabilities(block_sizes=(16,)), block_size=32)


def check_steps_in_flight(engine):
    for depth in (1, 2, 3):
        assert engine(Capabilities(steps_in_flight=depth)).config.steps_in_flight == depth
    with pytest.raises(UserError, match="2 steps in flight, not 3"):
        engine(Capabilities(steps_in_flight=2), steps_in_flight=3)


def check_batched_tokens(engine):
    for tokens in (64, 128):
        assert engine(Capabilities(batched_tokens=tokens)).info.max_num_batched_tokens == tokens
    assert engine(Capabilities(batched_tokens=64), max_num_batched_tokens=256).info.max_num_batched_tokens == 256


def check_max_num_seqs(engine):
    for rows in (3, 7):
        assert engine(Capabilities(max_num_seqs=rows)).info.max_num_seqs == rows
    assert engine(Capabilities(max_num_seqs=3), max_num_seqs=5).info.max_num_seqs == 5


def check_memory_utilization(engine):
    few, many = (
        engine(Capabilities(memory_utilization=part), max_num_seqs=10_000).info.num_blocks for part in (0.02, 0.04)
    )
    assert many == pytest.approx(2 * few, rel=0.01)


def check_attention_kinds(engine):
    sliding = {**MODEL, "sliding_window": 32}
    assert engine(Capabilities(attention_kinds=("full", "sliding")), sliding).info.num_blocks > 1
    with pytest.raises(UserError, match="no sliding attention"):
        engine(Capabilities(attention_kinds=("full",)), sliding)


def check_weight_formats(engine, tmp_path):
    source = write_tiny_model(tmp_path / "tiny")
    options = {"model": str(source), "block_size": 16, "threads": 1, "quantization": "int8"}
    for formats in (("int4",), ("int8",)):
        given = []
        platform = Wide(Capabilities(weight_formats=formats))
        platform.prepare_weight = lambda weight, given=given: given.append(weight.quantization) or weight
        runner = platform.runner(make_config(options, {}))
        info = runner.load(_source(source), lambda what, done, total: None)
        runner.close()
        kept = "int8" in formats
        assert {quantization is not None for quantization in given} == {kept}
        assert any("no kernels for int8" in note for note in info.notes) != kept


def check_token_masks(engine, tmp_path):
    write_byte_model(tmp_path)
    params = SamplingParams(max_tokens=9, ignore_eos=True, structured_outputs={"regex": "(ab[0-9])*"})
    for masks, depth in ((True, 1), (True, 3), (False, 1)):
        started = engine(Capabilities(token_masks=masks, steps_in_flight=depth), {**MODEL, "vocab_size": 260})
        inputs = InputProcessor(started.source, byte_tokenizer(), started.info, seed=0)
        if masks:
            tokens = _run(started, inputs.prepare([1], params).submits[0])
            assert re.fullmatch(b"(ab[0-9]){3}", b"".join(map(byte_tokenizer().token_bytes, tokens)))
        else:
            with pytest.raises(RequestError, match="platform cannot mask tokens"):
                inputs.prepare([1], params)


def _run(engine, submit):
    """The tokens of one sequence."""
    engine.handle(submit)
    tokens = []
    while engine.has_work:
        for outputs in engine.step():
            tokens += np.frombuffer(outputs.token_ids, np.int32).tolist()
    return tokens


def check_kv_cache_dtypes(engine):
    capabilities = Capabilities(kv_cache_dtypes=("int8",))
    plain, small = (engine(capabilities, kv_cache_dtype=name).info for name in ("auto", "int8"))
    entries = [info.kv_cache_bytes / info.num_blocks / info.block_size for info in (plain, small)]
    assert entries == [
        2 * 2 * 64 * 4,
        2 * 2 * (64 + 4),
    ]  # layers, planes, a head in float32; int8, a scale
    with pytest.raises(UserError, match="--kv-cache-dtype can be: auto"):
        engine(Capabilities(), kv_cache_dtype="int8")


def check_runtimes(engine):
    assert engine(Capabilities(runtimes=("wire", "post")), runtime="post").config.runtime == "post"
    with pytest.raises(UserError, match="--runtime can be: auto"):
        engine(Capabilities(), runtime="post")


def check_refused_references(engine, tmp_path):
    source = write_tiny_model(tmp_path / "tiny")
    config = make_config({"model": str(source), "block_size": 16, "max_num_batched_tokens": 64, "threads": 1}, {})
    for refused in ((), ("paged_attention",)):
        runner = Wide(Capabilities(refused_references=refused)).runner(config)
        if refused:
            with pytest.raises(UserError, match="no usable kernel for paged_attention"):
                runner.load(_source(source), lambda what, done, total: None)
        else:
            runner.load(_source(source), lambda what, done, total: None)
            runner.close()


def check_collective_backend(engine, tmp_path):
    with pytest.raises(UserError, match="no collectives"):
        Wide(Capabilities(collective_backend=None)).communicator((0,))
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        communicator = Wide(Capabilities(collective_backend="gloo")).communicator((0,))
        assert (communicator.rank, communicator.size) == (0, 1)
    finally:
        distributed.destroy_process_group()


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}


def _source(folder):
    from anychip.weights.source import resolve_model

    return resolve_model(str(folder))


@pytest.mark.parametrize("field", CHECKS)
def test_a_field_changes_what_the_core_does(engine, tmp_path, field):
    check = CHECKS[field]
    check(engine, tmp_path) if check.__code__.co_argcount == 2 else check(engine)


def test_every_field_is_tried_at_two_values():
    assert set(CHECKS) == {field.name for field in dataclasses.fields(Capabilities)}


def test_by_default_little_is_promised():
    assert Capabilities() == Capabilities(
        dtypes=("float32",),
        block_sizes=(16,),
        steps_in_flight=1,
        attention_kinds=("full", "sliding"),
        weight_formats=(),
        kv_cache_dtypes=(),
        refused_references=(),
        token_masks=False,
        collective_backend=None,
    )


def test_the_null_platform_takes_any_capabilities():
    platform = Registry().choose("null").open(make_config({}))
    assert platform.capabilities.steps_in_flight == 2
    assert platform.memory() == Memory(2**30, 2**30)
