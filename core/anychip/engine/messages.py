"""What crosses between a client and the engine: the same structs inline and between processes.

Arrays travel as the bytes of little-endian int32 or float32, so that a step's message costs the same for one request as
for hundreds.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from anychip.config import EngineConfig
from anychip.engine.batch import Int32, RowSampling
from anychip.plugin.tasks import Task

FinishReason = Literal["stop", "length", "abort", "error"]


class Open(msgspec.Struct, tag=True, frozen=True):
    """May come before `Start`: open this config's device, while the client looks for the model."""

    config: EngineConfig


class Start(msgspec.Struct, tag=True, frozen=True):
    """Load this model; nothing may follow before the engine is ready."""

    config: EngineConfig


class Submit(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """One sequence to continue. `handle` is the client's own number, never used twice."""

    handle: int
    prompt: bytes
    """int32 token ids."""
    sampling: RowSampling
    max_tokens: int
    """Most tokens to sample; 0 only scores the prompt."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end the sequence; `eos_ids` says which of them are ends of sequence rather than asked for."""
    eos_ids: tuple[int, ...] = ()
    priority: int = 0
    """Lower runs first, under the priority policy."""
    pool: bool = False
    """Bring back one vector instead of tokens."""
    second_text: int | None = None
    """Index of the prompt token with which the second of two texts begins."""
    cache_salt: str = ""
    """Requests with different salts share no cached blocks."""
    grammar: str = ""
    """What the output has to fit, as llguidance writes it; empty for none."""

    @property
    def prompt_token_ids(self) -> Int32:
        """[P] the prompt."""
        return np.frombuffer(self.prompt, np.int32)


class Abort(msgspec.Struct, tag=True, frozen=True):
    """Stop these sequences; each is answered by a `Finished` unless it had finished before."""

    handles: tuple[int, ...]


class ResetPrefixCache(msgspec.Struct, tag=True, frozen=True):
    """Forget every cached block that no running request holds."""


class Shutdown(msgspec.Struct, tag=True, frozen=True):
    """End the process; open sequences are aborted."""


ToEngine = Open | Start | Submit | Abort | ResetPrefixCache | Shutdown


class Progress(msgspec.Struct, tag=True, frozen=True):
    """Something long goes on: `done` of `total`."""

    what: str
    done: int
    total: int


class EngineInfo(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The engine is ready. Sizes in tokens, blocks and bytes."""

    max_model_len: int
    vocab_size: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str
    device: str
    kv_cache_bytes: int
    weight_bytes: int
    prefix_caching: bool
    tasks: tuple[Task, ...] = ("generate",)
    token_masks: bool
    """Whether sequences may follow grammars."""
    vector_size: int = 0
    whole_prompts: bool = False
    """A prompt runs in one step, so that none may be longer than max_num_batched_tokens."""
    notes: tuple[str, ...] = ()
    ops: tuple[tuple[str, str, str], ...] = ()
    """(op, how it runs, why not by a kernel) for each op."""
    compilations: int = 0
    """Programs that were compiled for shapes of steps before serving."""


class Failure(msgspec.Struct, tag=True, frozen=True):
    """The engine cannot start, or has to end. Our own bugs have no `remedy`, but a traceback in `detail`."""

    message: str
    remedy: str = ""
    detail: str = ""


class Scheduled(msgspec.Struct, frozen=True, array_like=True):
    """A sequence was scheduled for the first time."""

    handle: int
    cached_tokens: int
    waited: float
    """Seconds in the queue."""


class Finished(msgspec.Struct, frozen=True, array_like=True):
    """A sequence ended; its last tokens are in the same message."""

    handle: int
    reason: FinishReason
    stop_token_id: int | None = None
    """The token of `stop_token_ids` that ended it; None for an end of sequence."""
    error: str = ""
    refused: bool = False
    """Whether the request itself is at fault for the error."""


class LogprobRows(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of consecutive tokens of one sequence, from the one at index `first` of the whole sequence on.

    `token_ids` and `values` hold [n, width] int32 and float32, column 0 the token itself; `ranks` [n] int32.
    """

    handle: int
    prompt: bool
    first: int
    width: int
    token_ids: bytes
    values: bytes
    ranks: bytes


class Vectors(msgspec.Struct, frozen=True, array_like=True):
    """Pooled vectors: `handles` int64, and as many lines of float32 in `values`."""

    handles: bytes = b""
    values: bytes = b""


class Stats(msgspec.Struct, frozen=True, array_like=True):
    """Counters of the scheduler, those ending in `total` since the start."""

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks: int = 0
    prefix_queries_total: int = 0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits_total: int = 0
    """Prompt tokens found there."""
    preemptions_total: int = 0
    steps_total: int = 0
    scheduled_tokens: int = 0
    """Tokens of the latest step."""


class StepOutputs(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """All that one step brought, for every sequence at once.

    Sequence i of `handles` (int64) gained token_ids[token_start[i]:token_start[i+1]] (int32 each).
    """

    handles: bytes = b""
    token_start: bytes = b""
    token_ids: bytes = b""
    scheduled: tuple[Scheduled, ...] = ()
    finished: tuple[Finished, ...] = ()
    logprobs: tuple[LogprobRows, ...] = ()
    vectors: Vectors | None = None
    stats: Stats = Stats()


class Prepared(msgspec.Struct, tag=True, frozen=True):
    """What was made ahead of steps to come in moments without work, since the start: shapes of steps, mostly."""

    count: int = 0
    seconds: float = 0.0


FromEngine = Progress | EngineInfo | Failure | Prepared | StepOutputs

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: ToEngine | FromEngine) -> bytes:
    """MessagePack bytes of a message."""
    return _encoder.encode(message)


def decode_to_engine(data: bytes | memoryview) -> Any:
    """A `ToEngine` message; raises msgspec.DecodeError for anything else."""
    return _to_engine.decode(data)


def decode_from_engine(data: bytes | memoryview) -> Any:
    """A `FromEngine` message; raises msgspec.DecodeError for anything else."""
    return _from_engine.decode(data)
