"""Paged attention of a ragged batch, prompts and single tokens in one call.

keys, in HBM     k_pages[M, page, entry, D]      token p of a row: page block_tables[row, p // size], entry p % size
one copy         k_pages[:, page]  ->  buffer[slot, :, part of the group's entries]      all heads of a page at once
two slots        while a group of pages is multiplied, the next one, of this piece or of the piece after, is read
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from anychip_tpu.pallas.pieces import cut

LANES, SUBLANES = 128, 16
KEYS = 256
"""Keys of a group of pages that are multiplied together."""
QUERIES = 32
"""Tokens of a piece, where some row may bring several."""
LOWEST = -1e30


class Form(NamedTuple):
    """What a kernel is compiled for."""

    size: int
    """Tokens of a piece; a power of two."""
    page_size: int
    pages: int
    """Pages of a group."""
    table: int
    """Columns of the block table."""
    scale: float
    window: int | None
    soft_cap: float | None


def padded_head_size(size: int) -> int:
    """Elements of a cached head: whole vector registers. XLA would copy the pages of narrower ones at every call."""
    return -(-size // LANES) * LANES


@partial(jax.jit, static_argnames=("scale", "window", "soft_cap", "interpret"))
def ragged_paged_attention(
    q: jax.Array,
    k_pages: jax.Array,
    v_pages: jax.Array,
    block_tables: jax.Array,
    query_starts: jax.Array,
    context_lengths: jax.Array,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    interpret: Any = False,
) -> jax.Array:
    """Attention of each row over its own pages, the step's tokens included: q [T, N, D] -> [T, N, D] in q's type.

    k_pages and v_pages [M, blocks, block size, D'] with D' = padded_head_size(D) and N a multiple of M; a block holds a
    multiple of 16 tokens. block_tables [R, B], query_starts [R+1] and context_lengths [R] int32: row r owns tokens
    query_starts[r] to query_starts[r+1], the last of context_lengths[r] tokens in its blocks. Rows may be empty; tokens
    behind the last row are padding, and come back as zeros. Causal; with a window w, position p sees p-w+1 to p.
    """
    (tokens, heads, dim), (kv_heads, _, page_size, width) = q.shape, k_pages.shape
    groups, size = heads // kv_heads, 1 if tokens <= len(context_lengths) else QUERIES
    pages = max(1, min(KEYS // page_size, block_tables.shape[1]))
    form = Form(size, page_size, pages, block_tables.shape[1], scale, window, soft_cap)
    pieces = cut(query_starts, context_lengths, tokens, size)
    places = jnp.clip(pieces.token[:, None] + jnp.arange(size), 0, tokens - 1)
    queries = q[places].reshape(len(places), size, kv_heads, groups, dim).transpose(0, 2, 3, 1, 4)
    queries = queries.reshape(len(places), kv_heads, groups * size, dim)
    queries = jnp.pad(queries, ((0, 0), (0, 0), (0, -groups * size % SUBLANES), (0, width - dim)))
    scalars = (block_tables.reshape(-1), pieces.row, pieces.position, pieces.context, pieces.total)
    found = _call(form, queries, k_pages, v_pages, scalars, interpret)[:, :, : groups * size, :dim]
    found = found.reshape(len(places), heads, size, dim)
    within = jnp.arange(tokens) - pieces.token[jnp.minimum(pieces.of_token, len(places) - 1)]
    attended = found.at[pieces.of_token, :, within % size].get(mode="fill", fill_value=0)
    return attended.astype(q.dtype)


def _call(
    form: Form, queries: jax.Array, k: jax.Array, v: jax.Array, scalars: tuple[jax.Array, ...], interpret: Any
) -> jax.Array:
    count, heads, rows, dim = queries.shape
    block = pl.BlockSpec((1, heads, rows, dim), lambda piece, *_: (piece, 0, 0, 0))
    pages = pl.BlockSpec(memory_space=pl.ANY)
    buffer = pltpu.VMEM((2, heads, form.pages * form.page_size, dim), k.dtype)
    numbers = pltpu.VMEM((heads, rows, LANES), jnp.float32)
    return pl.pallas_call(
        partial(_kernel, form),
        out_shape=jax.ShapeDtypeStruct(queries.shape, queries.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(scalars),
            grid=(count,),
            in_specs=[block, pages, pages],
            out_specs=block,
            scratch_shapes=[
                *(buffer, buffer, pltpu.SemaphoreType.DMA((2, 2)), pltpu.SMEM((1,), jnp.int32)),
                *(numbers, numbers, pltpu.VMEM((heads, rows, dim), jnp.float32)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(*scalars, queries, k, v)


class _Reader(NamedTuple):
    """Copies groups of a piece's pages into the buffers."""

    form: Form
    tables: Any
    row: Any
    position: Any
    context: Any
    sources: tuple[Any, Any]
    buffers: tuple[Any, Any]
    arrived: Any

    def first_page(self, piece: Any) -> Any:
        """The first page that any of a piece's tokens sees."""
        if self.form.window is None:
            return 0
        return jax.lax.div(jnp.maximum(self.position[piece] - self.form.window + 1, 0), self.form.page_size)

    def groups(self, piece: Any) -> Any:
        """Groups of pages that a piece reads."""
        pages = pl.cdiv(self.context[piece], self.form.page_size) - self.first_page(piece)
        return pl.cdiv(pages, self.form.pages)

    def start(self, piece: Any, group: Any, slot: Any) -> None:
        """Begin to copy a group."""
        self._each(piece, group, slot, lambda copy: copy.start())

    def wait(self, piece: Any, group: Any, slot: Any) -> None:
        """Wait for a group that was begun."""
        self._each(piece, group, slot, lambda copy: copy.wait())

    def _each(self, piece: Any, group: Any, slot: Any, do: Any) -> None:
        first = self.first_page(piece) + group * self.form.pages
        count = jnp.minimum(pl.cdiv(self.context[piece], self.form.page_size) - first, self.form.pages)

        def copy(index: Any, _: Any) -> Any:
            block = self.tables[self.row[piece] * self.form.table + first + index]
            entries = pl.ds(pl.multiple_of(index * self.form.page_size, self.form.page_size), self.form.page_size)
            for plane in range(2):
                target = self.buffers[plane].at[slot, :, entries]
                do(pltpu.make_async_copy(self.sources[plane].at[:, block], target, self.arrived.at[slot, plane]))
            return 0

        jax.lax.fori_loop(0, count, copy, 0)


def _kernel(
    form: Form,
    tables: Any,
    row: Any,
    position: Any,
    context: Any,
    total: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    keys: Any,
    values: Any,
    arrived: Any,
    next_slot: Any,
    highest: Any,
    mass: Any,
    sums: Any,
) -> None:
    """One piece. `next_slot` is where the first of its groups was put by the piece before it."""
    piece = pl.program_id(0)
    reader = _Reader(form, tables, row, position, context, (k, v), (keys, values), arrived)

    def begin() -> None:
        next_slot[0] = 0
        reader.start(0, 0, 0)

    pl.when(piece == 0)(begin)
    first, count = next_slot[0], reader.groups(piece)
    highest[...] = jnp.full_like(highest, LOWEST)
    mass[...] = jnp.zeros_like(mass)
    sums[...] = jnp.zeros_like(sums)

    def step(group: Any, _: Any) -> Any:
        slot, other = (first + group) % 2, (first + group + 1) % 2
        more = group + 1 < count
        pl.when(more)(lambda: reader.start(piece, group + 1, other))
        pl.when(~more & (piece + 1 < total[0]))(lambda: reader.start(piece + 1, 0, other))
        reader.wait(piece, group, slot)
        start = (reader.first_page(piece) + group * form.pages) * form.page_size
        for head in range(keys.shape[1]):
            places = start - position[piece], context[piece] - start
            _attend(form, head, slot, *places, q, keys, values, highest, mass, sums)
        return 0

    jax.lax.fori_loop(0, count, step, 0)
    next_slot[0] = (first + count) % 2
    for head in range(keys.shape[1]):
        out[0, head] = (sums[head] / mass[head][:, :1]).astype(out.dtype)


def _attend(
    form: Form,
    head: int,
    slot: Any,
    ahead: Any,
    held: Any,
    q: Any,
    keys: Any,
    values: Any,
    highest: Any,
    mass: Any,
    sums: Any,
) -> None:
    """One head's queries against a group of keys, of which `held` were written and the first lies `ahead` of the first.

    The softmax of Milakov and Gimelshein (2018): sums so far are rescaled whenever a higher score comes.
    """
    precision = jax.lax.Precision.HIGHEST if keys.dtype == jnp.float32 else None
    dot = partial(jax.lax.dot_general, precision=precision, preferred_element_type=jnp.float32)
    scores = dot(q[0, head], keys[slot, head], (((1,), (1,)), ((), ()))) * form.scale
    if form.soft_cap is not None:
        scores = form.soft_cap * jnp.tanh(scores / form.soft_cap)
    token = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) & (form.size - 1)
    key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    seen = (ahead + key <= token) & (key < held)
    entry = jax.lax.broadcasted_iota(jnp.int32, (keys.shape[2], 1), 0)
    useful = entry < held
    if form.window is not None:
        seen = seen & (ahead + key > token - form.window)
        useful = useful & (ahead + entry > -form.window)
    scores = jnp.where(seen, scores, LOWEST)
    before = highest[head][:, :1]
    after = jnp.maximum(before, scores.max(axis=1, keepdims=True))
    shares, rescale = jnp.exp(scores - after), jnp.exp(before - after)
    # What nobody sees may be another request's, or was never written, and 0 * nan is nan.
    value = jnp.where(useful, values[slot, head], 0)
    highest[head] = jnp.broadcast_to(after, highest.shape[1:])
    mass[head] = mass[head] * rescale + shares.sum(axis=1, keepdims=True)
    sums[head] = sums[head] * rescale + dot(shares.astype(value.dtype), value, (((1,), (0,)), ((), ())))
