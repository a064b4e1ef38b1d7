"""The null platform: a device that computes nothing, to measure the host and to test the core without a model.

A narrow-door platform: it needs no torch and no weights, only a config. Its model is the one whose next token is
certain: `next_token(position)`. Temperature, top_k, top_p, min_p and seed cannot change that, as with any distribution
of one token; what could change it, or asks for a number, is refused. Where a grammar forbids it, the next token that is
allowed takes its place. `step_seconds` in the model's config makes a step take that long, as a device would, and
`unprepared` says how many things there are to prepare while idle, each of which takes as long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from anychip.cache.storage import stored_as
from anychip.config import EngineConfig
from anychip.engine.batch import POOL, SAMPLE, AdmittedRow, Batch, Int32, Pooled, RowSampling
from anychip.engine.task import model_task
from anychip.errors import UserError
from anychip.plugin.contract import (
    Capabilities,
    KVPlan,
    KVSpec,
    Memory,
    ModelInfo,
    ModelSource,
    Plane,
    Platform,
    Progress,
    Runner,
    Step,
)
from anychip.testing.null_step import NullStep, TimedStep, next_token

GIBIBYTE = 2**30
DEFAULT = Capabilities(
    steps_in_flight=2, token_masks=True, attention_kinds=("full", "sliding", "latent", "recurrent", "cross")
)


class NullPlatform(Platform):
    """Declares what it is told to; `memory` is what it says it has, all of it free."""

    def __init__(self, capabilities: Capabilities = DEFAULT, memory: Memory | None = None) -> None:
        self._capabilities = capabilities
        self._memory = memory or Memory(GIBIBYTE, GIBIBYTE)

    @property
    def capabilities(self) -> Capabilities:
        """What the constructor was given."""
        return self._capabilities

    def memory(self) -> Memory:
        """What the constructor was given."""
        return self._memory

    def runner(self, config: EngineConfig) -> Runner:
        """A runner that looks at shapes only."""
        return NullRunner(self, config)


class NullRunner(Runner):
    """Answers every step at once. `last_batch` is the newest one, for tests that look at what the core sends."""

    def __init__(self, platform: NullPlatform, config: EngineConfig) -> None:
        self.platform = platform
        self.config = config
        self.plan: KVPlan | None = None
        self.last_batch: Batch | None = None
        self._vocab_size = self._vector_size = 0
        self._step_seconds = 0.0
        self._free_at = 0.0
        self._unprepared = 0
        self._refused: dict[int, str] = {}

    def load(self, source: ModelSource, progress: Progress) -> ModelInfo:
        """Read the shape; a config that does not give one is a small model."""
        config = source.config
        dtype = self.config.dtype if self.config.dtype != "auto" else self.platform.capabilities.dtypes[0]
        kv_spec = stored_as(_kv_spec(config, dtype), self.config.kv_cache_dtype)
        self._vocab_size = int(config.get("vocab_size", 256))
        self._step_seconds = float(config.get("step_seconds", 0.0))
        self._unprepared = int(config.get("unprepared", 0))
        pools = model_task(self.config, source) != "generate"
        self._vector_size = int(config.get("hidden_size", 64)) if pools else 0
        progress("loading nothing", 1, 1)
        return ModelInfo(
            kv_specs=(kv_spec,) * int(config.get("num_hidden_layers", 1)),
            vocab_size=self._vocab_size,
            max_model_len=int(config.get("max_position_embeddings", 2048)),
            dtype=dtype,
            notes=("the null platform computes nothing",),
            tasks=("embed", "score", "classify") if pools else ("generate",),
            vector_size=self._vector_size,
            pools_all=self.config.pooling in ("mean", "cls"),
        )

    def measure(self) -> Memory:
        """No step takes memory."""
        return self.platform.memory()

    def start(self, plan: KVPlan) -> None:
        """Nothing to allocate."""
        if plan.bytes > self.platform.memory().free:
            raise UserError("The plan does not fit the null platform's memory.", "Lower --kv-cache-memory-bytes.")
        self.plan = plan

    def submit(self, batch: Batch) -> Step:
        """Keep what the result needs."""
        self.last_batch = batch
        for row in batch.retired:
            self._refused.pop(row, None)
        for admitted in batch.admitted:
            self._admit(admitted)
        places = np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1
        sampled = batch.targets == SAMPLE
        rows, positions = batch.rows[places[sampled]], batch.positions[batch.logits_at[sampled]] + 1
        pooled = self._pooled(batch.rows[places[batch.targets == POOL]])
        tokens = next_token(positions, self._vocab_size)
        step = NullStep(rows, tokens, pooled, self._errors(batch), self._vocab_size)
        return TimedStep(step, self._due()) if self._step_seconds else step

    def prepare(self) -> bool:
        """Take as long as a step, as often as the model's config says."""
        if not self._unprepared:
            return False
        time.sleep(self._step_seconds)
        self._unprepared -= 1
        return True

    def _due(self) -> float:
        """When the device will have done the step, on `time.monotonic`."""
        self._free_at = max(self._free_at, time.monotonic()) + self._step_seconds
        return self._free_at

    def _pooled(self, rows: Int32) -> Pooled | None:
        """The same vector for every text."""
        return Pooled(rows, np.ones((len(rows), self._vector_size), np.float32)) if len(rows) else None

    def _admit(self, admitted: AdmittedRow) -> None:
        reason = refusal(admitted.sampling)
        if reason:
            self._refused[admitted.row] = reason

    def _errors(self, batch: Batch) -> dict[int, str]:
        if not self._refused:
            return {}
        return {row: self._refused[row] for row in batch.rows.tolist() if row in self._refused}


def refusal(sampling: RowSampling) -> str:
    """Why the null platform cannot honour this request, or nothing."""
    asked = {
        "logprobs": sampling.logprobs is not None,
        "prompt_logprobs": sampling.prompt_logprobs is not None,
        "presence_penalty": sampling.presence_penalty != 0.0,
        "frequency_penalty": sampling.frequency_penalty != 0.0,
        "repetition_penalty": sampling.repetition_penalty != 1.0,
        "bad_words": bool(sampling.bad_words),
        "logit_bias": bool(sampling.logit_bias),
        "allowed_token_ids": sampling.allowed_token_ids is not None,
        "min_tokens": sampling.min_tokens > 0 and bool(sampling.stop_token_ids),
    }
    fields = [name for name, given in asked.items() if given]
    return f"The null platform computes no logits, so it refuses {', '.join(fields)}." if fields else ""


def _kv_spec(config: Mapping[str, Any], dtype: str) -> KVSpec:
    heads = int(config.get("num_key_value_heads") or config.get("num_attention_heads") or 1)
    dim = int(config.get("head_dim") or int(config.get("hidden_size", 64)) // int(config.get("num_attention_heads", 1)))
    window = config.get("sliding_window")
    planes = (Plane("k", (heads, dim), dtype), Plane("v", (heads, dim), dtype))
    return KVSpec("sliding" if window else "full", planes, int(window) if window else None)
