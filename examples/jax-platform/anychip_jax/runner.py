"""The step loop: a batch's arrays to the device, the forward pass, a token for each row that samples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import anychip.plugin as core
from anychip.weights import read_weights
from anychip_jax.model import Shape, Tokens, forward, load
from anychip_jax.rows import Rows, bucket, padded
from anychip_jax.step import JaxStep

if TYPE_CHECKING:
    from anychip_jax.platform import JaxPlatform

PIECE = 32  # tokens of one row that attend together, where some row brings several


class JaxRunner(core.Runner):
    """One model on one device of JAX's."""

    def __init__(self, platform: JaxPlatform, config: core.EngineConfig) -> None:
        self.platform, self.config = platform, config

    def load(self, source: core.ModelSource, progress: core.Progress) -> core.ModelInfo:
        """See `Runner.load`."""
        config, stored = self.config, ("auto", source.kind)
        if config.quantization or config.load_format not in stored or config.task not in ("auto", "generate"):
            remedy = "Leave out --quantization, --load-format and --task."
            raise core.UserError("The example in JAX generates text, with a checkpoint's own weights.", remedy)
        dtype = self.platform.capabilities.dtypes[0] if config.dtype == "auto" else config.dtype
        self.shape = shape = Shape.read(source.config)
        self.weights = load(shape, read_weights(source, progress), dtype, self.platform.device)
        planes = tuple(core.Plane(name, (shape.kv_heads, shape.head_dim), dtype) for name in "kv")
        spec = core.KVSpec("sliding" if shape.window else "full", planes, shape.window)
        size = sum(values.nbytes for part in self.weights for values in part.values())
        return core.ModelInfo((spec,) * shape.layers, shape.vocab, shape.positions, size, dtype)

    def measure(self) -> core.Memory:
        """Nothing has to run: XLA says what its largest program needs. Sampling holds a few copies of its logits."""
        rows, budget, size = self.config.max_num_seqs, self.config.max_num_batched_tokens, self.config.block_size
        self.rows = Rows(rows, self.shape.vocab)
        longest = min(self.config.max_model_len or self.shape.positions, self.shape.positions)
        pieces, blocks = bucket(budget // PIECE + rows), bucket(-(-longest // size))
        each, piece, table = (
            np.zeros(extent, np.int32) for extent in (bucket(budget), (pieces, PIECE), (pieces, blocks))
        )
        tokens = Tokens(each, each, each, each, piece, table)
        cache = jax.eval_shape(partial(self._new_cache, blocks, size))
        program = forward.lower(self.shape, self.weights, cache, self.rows.state["newest"], tokens).compile()
        needed = program.memory_analysis().temp_size_in_bytes + 8 * 4 * bucket(rows) * self.shape.vocab
        memory = self.platform.memory()
        return core.Memory(max(0, memory.free - needed), memory.total)

    def start(self, plan: core.KVPlan) -> None:
        """See `Runner.start`. The smallest step is compiled here, the others when they first come."""
        self.cache = self._new_cache(plan.groups[0].num_blocks, plan.block_size)
        self.rows = Rows(plan.max_num_seqs, self.shape.vocab)
        zeros = np.zeros((8, 8), np.int32)
        self._forward(Tokens(*zeros[:4], zeros[:, :1], zeros))

    def submit(self, batch: core.Batch) -> core.Step:
        """See `Runner.submit`."""
        self.rows.admit(batch)
        if batch.block_copies:
            pairs = np.array([(copy.source, copy.target) for copy in batch.block_copies])
            self.cache = _copy_blocks(self.cache, *pairs.T)
        hidden = self._forward(self._tokens(batch)) if batch.num_tokens else None
        return JaxStep(self, batch, hidden)

    def close(self) -> None:
        """See `Runner.close`."""
        self.weights, self.cache, self.rows = ({}, {}), jnp.zeros(0), Rows(0, 0)

    def _new_cache(self, blocks: int, size: int) -> jax.Array:
        shape, dtype = self.shape, self.weights[0]["model.norm"].dtype
        extent = (shape.layers, 2, blocks, size, shape.kv_heads, shape.head_dim)
        return jnp.zeros(extent, dtype, device=self.platform.device)

    def _forward(self, tokens: Tokens) -> jax.Array:
        hidden, self.cache = forward(self.shape, self.weights, self.cache, self.rows.state["newest"], tokens)
        return hidden

    def _tokens(self, batch: core.Batch) -> Tokens:
        """The batch's arrays in sizes of few kinds. All are new, as the scheduler writes to its own again."""
        size, (table,), start = bucket(batch.num_tokens), batch.block_tables, batch.query_start
        counts, number = np.diff(start), np.arange(batch.num_rows)
        row, each = np.repeat(number, counts), 1 if batch.num_single == batch.num_rows else PIECE
        pieces = -(-counts // each)
        owner = np.repeat(number, pieces)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        places = (start[owner] + within * each)[:, None] + np.arange(each)
        places = np.where(places < start[owner + 1, None], places, size).astype(np.int32)
        return Tokens(
            padded(batch.token_ids, size),
            padded(batch.rows[row], size, self.rows.padding),
            padded(batch.positions, size),
            padded(table[row, batch.positions // self.cache.shape[3]], size),
            padded(places, bucket(len(places)), size),
            padded(padded(table.T, bucket(table.shape[1])).T[owner], bucket(len(places))),
        )


@partial(jax.jit, donate_argnums=0)
def _copy_blocks(cache: jax.Array, source: Any, target: Any) -> jax.Array:
    return cache.at[:, :, target].set(cache[:, :, source])
