"""Every message survives its bytes; anything else is refused."""

import msgspec
import numpy as np
import pytest

from anychip.config import EngineConfig
from anychip.engine import messages
from anychip.engine.batch import RowSampling
from anychip.engine.messages import (
    Abort,
    EngineInfo,
    Failure,
    Finished,
    LogprobRows,
    Open,
    Prepared,
    Progress,
    ResetPrefixCache,
    Scheduled,
    Shutdown,
    Start,
    Stats,
    StepOutputs,
    Submit,
    Vectors,
    decode_from_engine,
    decode_to_engine,
    encode,
)

SAMPLING = RowSampling(
    seed=-(2**63),
    temperature=0.5,
    top_p=0.5,
    top_k=3,
    min_p=0.1,
    presence_penalty=-1.0,
    frequency_penalty=1.0,
    repetition_penalty=1.5,
    min_tokens=2,
    stop_token_ids=(1, 2),
    bad_words=((1,), (2, 3)),
    logit_bias=((4, -100.0),),
    allowed_token_ids=(5,),
    logprobs=0,
    prompt_logprobs=3,
)
IDS = np.array([1, -1, 2**31 - 1], np.int32).tobytes()

TO_ENGINE = [
    Open(EngineConfig(model="m", device="null")),
    Start(EngineConfig(model="m", plugins=("a",), memory_utilization=0.5, origins={"model": "argument"})),
    Submit(handle=2**62, prompt=IDS, sampling=SAMPLING, max_tokens=0),
    Submit(
        handle=0,
        prompt=b"",
        sampling=RowSampling(seed=2**63 - 1),
        max_tokens=5,
        stop_ids=(1, 2),
        eos_ids=(2,),
        priority=-3,
        cache_salt="\N{SNOWMAN}",
    ),
    Submit(handle=1, prompt=IDS, sampling=SAMPLING, max_tokens=1, pool=True, second_text=2),
    Abort((1, 2)),
    Abort(()),
    ResetPrefixCache(),
    Shutdown(),
]
FROM_ENGINE = [
    Progress("weights", 1, 2),
    EngineInfo(
        token_masks=True,
        max_model_len=1,
        vocab_size=2,
        num_blocks=3,
        block_size=4,
        max_num_seqs=5,
        max_num_batched_tokens=6,
        dtype="float32",
        device="x:0",
        kv_cache_bytes=2**40,
        weight_bytes=7,
        prefix_caching=True,
        notes=("one", "two"),
    ),
    Failure("It broke.", "Mend it.", "Traceback"),
    Prepared(3, 0.5),
    StepOutputs(),
    StepOutputs(
        handles=np.array([2**40], np.int64).tobytes(),
        token_start=np.array([0, 3], np.int32).tobytes(),
        token_ids=IDS,
        scheduled=(Scheduled(1, 16, 0.25),),
        finished=(
            Finished(1, "stop"),
            Finished(2, "stop", 0),
            Finished(3, "length"),
            Finished(4, "abort"),
            Finished(5, "error", error="It broke."),
        ),
        logprobs=(
            LogprobRows(
                1,
                True,
                3,
                2,
                IDS,
                IDS,
                b"",
            ),
        ),
        vectors=Vectors(np.array([2**40], np.int64).tobytes(), IDS),
        stats=Stats(1, 2, 3, 4, 5, 6, 7, 8, 9),
    ),
]


@pytest.mark.parametrize("message", TO_ENGINE, ids=lambda one: type(one).__name__)
def test_what_goes_to_the_engine_survives(message):
    assert decode_to_engine(encode(message)) == message
    assert decode_to_engine(memoryview(encode(message))) == message


@pytest.mark.parametrize("message", FROM_ENGINE, ids=lambda one: type(one).__name__)
def test_what_comes_from_the_engine_survives(message):
    assert decode_from_engine(encode(message)) == message


def test_no_message_is_left_out():
    structs = {one for one in vars(messages).values() if isinstance(one, type) and one.__module__ == messages.__name__}
    nested = {Scheduled, Finished, LogprobRows, Stats, Vectors}
    assert structs == {type(one) for one in [*TO_ENGINE, *FROM_ENGINE]} | nested


def test_a_prompt_is_read_without_a_copy():
    message = decode_to_engine(encode(TO_ENGINE[2]))
    assert message.prompt_token_ids.tolist() == [1, -1, 2**31 - 1]
    assert message.prompt_token_ids.base is not None


@pytest.mark.parametrize("data", [b"", b"\xc1", encode(Progress("x", 0, 1)), msgspec.msgpack.encode({"type": "Other"})])
def test_anything_else_is_refused(data):
    with pytest.raises(msgspec.DecodeError):
        decode_to_engine(data)


def test_an_end_for_no_known_reason_is_refused():
    with pytest.raises(msgspec.DecodeError):
        decode_from_engine(encode(StepOutputs(finished=(Finished(1, "tired"),))))
