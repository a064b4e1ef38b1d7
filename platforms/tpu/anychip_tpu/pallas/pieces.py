"""A ragged batch cut into pieces of equal size, each of which belongs to one row."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pieces(NamedTuple):
    """P pieces of up to `size` tokens, those that hold any first; int32."""

    row: jax.Array
    """[P]."""
    token: jax.Array
    """[P] the first token."""
    position: jax.Array
    """[P] its position in the row."""
    context: jax.Array
    """[P] keys that the piece's last token sees or lies behind: 0 for a piece that holds nothing."""
    total: jax.Array
    """[1] pieces that hold tokens."""
    of_token: jax.Array
    """[T] the piece of each token, P for padding behind the last row."""


def piece_count(tokens: int, rows: int, size: int) -> int:
    """Pieces that any batch of these shapes fits in."""
    return min(tokens, -(-tokens // size) + rows)


def cut(query_starts: jax.Array, context_lengths: jax.Array, tokens: int, size: int) -> Pieces:
    """Pieces of a step's T tokens. query_starts [R+1], context_lengths [R]; rows may be empty, tokens padding."""
    count = piece_count(tokens, len(context_lengths), size)
    starts, lengths = query_starts[:-1], jnp.diff(query_starts)
    each = -(-lengths // size)
    ends = jnp.cumsum(each).astype(jnp.int32)
    number = jnp.arange(count, dtype=jnp.int32)
    row = jnp.minimum(_owner(ends, number), len(context_lengths) - 1)
    offset = (number - (ends - each)[row]) * size
    position = (context_lengths - lengths)[row] + offset
    held = jnp.where(number < ends[-1], jnp.clip(lengths[row] - offset, 0, size), 0)
    token = jnp.arange(tokens, dtype=jnp.int32)
    mine = jnp.minimum(_owner(query_starts[1:], token), len(context_lengths) - 1)
    of_token = (ends - each)[mine] + (token - starts[mine]) // size
    return Pieces(
        row=row,
        token=starts[row] + offset,
        position=position,
        context=jnp.where(held > 0, position + held, 0),
        total=ends[-1:],
        of_token=jnp.where(token < query_starts[-1], of_token, count),
    )


def _owner(ends: jax.Array, number: jax.Array) -> jax.Array:
    """How many of `ends` [R] lie at or below each number."""
    return (ends[None, :] <= number[:, None]).sum(1, dtype=jnp.int32)
