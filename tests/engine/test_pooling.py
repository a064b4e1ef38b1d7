"""Requests for vectors on the scheduler: whole or in chunks, beside each other, aborted, failing."""

import json
import random

import numpy as np
import pytest
from tests.engine.device import extend_digest, start_digest, vector
from tests.engine.harness import Harness
from tests.engine.plans import make_plan, submit

from anychip.engine.batch import POOL, RowSampling
from anychip.engine.scheduler import Policy
from anychip.errors import RequestError
from anychip.llm import LLM
from anychip.plugin.contract import KVPlan


class PoolingHarness(Harness):
    """Keeps the vectors that come."""

    vectors: dict

    def receive(self, outputs):
        self.vectors = getattr(self, "vectors", {})
        if outputs.vectors is not None:
            handles = np.frombuffer(outputs.vectors.handles, np.int64).tolist()
            values = np.frombuffer(outputs.vectors.values, np.float32).reshape(len(handles), -1)
            for handle, found in zip(handles, values.tolist(), strict=True):
                assert handle not in self.vectors, "a vector came twice"
                self.vectors[handle] = found
        super().receive(outputs)


class WholeHarness(PoolingHarness):
    """Its device caches nothing."""

    def submit(self):
        scheduled = self.scheduler.schedule()
        if scheduled is None:
            return None
        batch, record = scheduled
        self.under_way.append((record, self.device.submit_whole(batch)))
        self.batches.append(batch)
        return batch

    def commit(self):
        self.receive(self.scheduler.commit(*self.under_way.pop(0)))
        if not self.under_way:
            self.scheduler.check_integrity()


def asked(handle, length, **fields):
    return submit(handle, [(handle + index) % 7 for index in range(length)], 1, pool=True, **fields)


def expected(message):
    digest = start_digest(message.sampling.seed)
    for token in message.prompt_token_ids.tolist():
        digest = extend_digest(digest, token)
    return vector(digest)


def check(harness):
    for handle, sequence in harness.sequences.items():
        assert sequence.finished.reason == "stop"
        assert sequence.tokens == []
        assert harness.vectors[handle] == expected(sequence.message)


def without_cache(**sizes):
    """A plan of a model that caches nothing."""
    plan = make_plan(**sizes)
    return KVPlan((), plan.block_size, plan.max_num_seqs, plan.max_model_len, plan.max_num_batched_tokens)


@pytest.mark.parametrize("depth", [1, 2])
def test_long_prompts_come_in_chunks_and_give_one_vector(depth):
    harness = PoolingHarness(make_plan(40, 40), depth=depth)
    harness.add(*(asked(handle, length) for handle, length in enumerate((64, 1, 17, 40, 2))))
    harness.drain()
    check(harness)
    wanted = [target for batch in harness.batches for target in batch.targets.tolist()]
    assert wanted == [POOL] * 5
    assert len(harness.batches) >= 124 // 32


def test_a_prompt_as_long_as_the_model_takes_is_no_token_too_long():
    harness = PoolingHarness(make_plan(40, max_model_len=64))
    harness.add(asked(0, 64))
    harness.drain()
    check(harness)


def test_equal_prompts_share_what_is_cached():
    harness = PoolingHarness(make_plan(40))
    harness.add(asked(0, 32))
    harness.drain()
    harness.add(submit(1, harness.sequences[0].prompt, 1, pool=True))
    assert harness.tick().num_tokens == 4
    harness.drain()
    check(harness)


@pytest.mark.parametrize("depth", [1, 2])
def test_whole_prompts_are_never_cut(depth):
    """Random lengths up to the budget: each prompt lies in one step, in order, and the budget holds."""
    numbers = random.Random(3)
    policy = Policy(prefix_caching=False, whole_prompts=True)
    harness = WholeHarness(without_cache(max_num_seqs=6), policy, depth)
    harness.add(*(asked(handle, numbers.randint(1, 32)) for handle in range(60)))
    harness.drain()
    check(harness)
    for batch in harness.batches:
        assert (batch.positions[batch.query_start[:-1]] == 0).all()
        assert (np.diff(batch.query_start) == batch.seq_lens).all()
        assert batch.block_tables == ()
        assert batch.num_tokens <= 32
    mean = sum(batch.num_tokens for batch in harness.batches) / len(harness.batches)
    assert mean > 20, "steps are mostly empty"


def test_aborted_and_failing_requests_leave_the_others_alone():
    harness = PoolingHarness(make_plan(40), depth=2, fails=lambda seed, step, row: seed == 9)
    harness.add(*(asked(handle, 20) for handle in range(4)))
    harness.add(asked(4, 20, sampling=RowSampling(seed=9)))
    harness.tick()
    harness.scheduler.abort([1])
    harness.drain()
    ends = [harness.sequences[handle].finished.reason for handle in range(5)]
    assert ends == ["stop", "abort", "stop", "stop", "error"]
    for handle in (0, 2, 3):
        assert harness.vectors[handle] == expected(harness.sequences[handle].message)


@pytest.mark.parametrize(("name", "tasks"), [("BertModel", ("embed", "score", "classify")), ("", ("generate",))])
def test_the_null_platform_gives_vectors_through_the_whole_engine(tmp_path, name, tasks):
    """What a runner says its model can do is what requests may ask: two answers, two outcomes."""
    config = {"model_type": "x", "vocab_size": 64, "hidden_size": 8, "architectures": [name]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    prompts = [{"prompt_token_ids": [2] * length} for length in (1, 100, 3000 % 2048, 7)]
    with LLM(str(tmp_path), device="null", load_format="dummy", skip_tokenizer_init=True) as llm:
        assert llm.engine.info.tasks == tasks
        if "embed" in tasks:
            found = llm.embed(prompts, use_tqdm=False)
            assert [one.outputs.embedding for one in found] == [pytest.approx([8**-0.5] * 8)] * 4
        else:
            with pytest.raises(RequestError, match="loaded to generate"):
                llm.embed(prompts, use_tqdm=False)
        assert not llm.engine.has_work
        llm.engine.check_integrity()
