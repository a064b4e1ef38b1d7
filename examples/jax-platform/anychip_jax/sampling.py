"""Choosing tokens on the device, by stable row; what each field means is defined by `anychip.sample`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 128  # tokens: a block of the vocabulary is drawn with a first number, a token in it with a second
LOWEST_TEMPERATURE = 1e-10
NUMBERS = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")

State = dict[str, jax.Array]
"""By stable row: its newest token [rows]; what is added to its logits, and counts of its tokens, [rows, V]."""


class Plan(NamedTuple):
    """What the S rows that sample in a step ask for, padded."""

    rows: Any  # [S] stable rows
    numbers: Any  # [7, S, 1] float32, as in NUMBERS
    uniforms: Any  # [S, 2] in [0, 1)
    forbidden: Any  # [E, 2] index of a row, S for padding, and a token that it may not sample in this step
    masks: Any  # [S, ceil(V / 32)] int32: bits of what may be sampled; None where no row has a grammar


def new_state(rows: int, vocab: int) -> State:
    """Nothing is known of any row."""
    counts = {name: jnp.zeros((rows, vocab), jnp.int32) for name in ("counts", "seen")}
    return {"newest": jnp.zeros(rows, jnp.int32), "bias": jnp.zeros((rows, vocab), jnp.float32), **counts}


@partial(jax.jit, donate_argnums=0)
def set_lines(state: State, row: int, lines: State) -> State:
    """Replace what is known of a row."""
    return state | {name: state[name].at[row].set(line) for name, line in lines.items()}


@partial(jax.jit, static_argnums=(3, 4, 5), donate_argnums=0)
def sample(
    state: State, raw: jax.Array, plan: Plan, draws: bool, truncates: bool, logprobs: int
) -> tuple[State, jax.Array, jax.Array, Any]:
    """The state, a token for each row of raw [S, V] float32, its highest logit, its log-probabilities.

    Some row `draws`, some row `truncates`; `logprobs` alternatives are reported, and nothing at all if it is -1.
    """
    values = _edited(state, raw, plan)
    if plan.masks is not None:
        allowed = (plan.masks[:, :, None] >> jnp.arange(32) & 1).reshape(len(raw), -1)[:, : raw.shape[1]]
        values = jnp.where(allowed == 1, values, -jnp.inf)
    highest, chosen = values.max(-1), values.argmax(-1).astype(jnp.int32)
    if draws:
        drawn = _drawn(values - highest[:, None], plan, truncates)
        chosen = jnp.where(plan.numbers[0, :, 0] > 0, drawn, chosen)
    state = state | {name: state[name].at[plan.rows, chosen].add(1) for name in ("counts", "seen")}
    state["newest"] = state["newest"].at[plan.rows].set(chosen)
    return state, chosen, highest, score(raw, chosen, logprobs) if logprobs >= 0 else None


@partial(jax.jit, static_argnames="count")
def score(raw: jax.Array, tokens: jax.Array, count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Ids and log-probabilities [S, 1 + count] of tokens [S] and the best ones under raw [S, V], and ranks [S]."""
    own = jnp.take_along_axis(raw, tokens[:, None], axis=1)
    best, ids = jax.lax.top_k(raw, count)
    values = jnp.concatenate([own, best], axis=1) - jax.nn.logsumexp(raw, axis=1, keepdims=True)
    return jnp.concatenate([tokens[:, None], ids], axis=1), values, (raw > own).sum(1) + 1


def _edited(state: State, raw: jax.Array, plan: Plan) -> jax.Array:
    """Forbidden tokens and bias, then penalties, of which repetition alone looks at the prompt too."""
    presence, frequency, repetition = plan.numbers[4:]
    values = raw + state["bias"][plan.rows]
    values = values.at[plan.forbidden[:, 0], plan.forbidden[:, 1]].set(-jnp.inf, mode="drop")
    repeated = jnp.where(values > 0, values / repetition, values * repetition)
    values = jnp.where(state["seen"][plan.rows] > 0, repeated, values)
    counts = state["counts"][plan.rows]
    return values - counts * frequency - (counts > 0) * presence


def _drawn(shifted: jax.Array, plan: Plan, truncates: bool) -> jax.Array:
    """[S] tokens by weight, of those that min_p, top_k and top_p leave; equals stay or go together."""
    temperature, top_k, top_p, min_p = plan.numbers[:4]
    scaled = shifted / jnp.maximum(temperature, LOWEST_TEMPERATURE)
    floor = jnp.log(min_p)
    if truncates:
        largest = -jnp.sort(-scaled, axis=-1)
        floor = jnp.maximum(floor, jnp.where(top_k > 0, _at(largest, top_k - 1), -jnp.inf))
        mass = jnp.cumsum(jnp.where(largest < floor, 0.0, jnp.exp(largest)), axis=-1)
        last = _at(largest, (mass < top_p * mass[:, -1:]).sum(-1, keepdims=True))
        floor = jnp.maximum(floor, jnp.where(top_p < 1.0, last, -jnp.inf))
    weights = jnp.where(scaled < floor, 0.0, jnp.exp(scaled))
    blocks = jnp.pad(weights, ((0, 0), (0, -weights.shape[1] % BLOCK))).reshape(len(weights), -1, BLOCK)
    block = _inverse(blocks.sum(-1), plan.uniforms[:, :1])
    inside = _inverse(blocks[jnp.arange(len(blocks)), block], plan.uniforms[:, 1:])
    return (block * BLOCK + inside).astype(jnp.int32)


def _at(values: jax.Array, index: jax.Array) -> jax.Array:
    """[S, 1]: one element of each row, the first or last where the index is beyond."""
    return jnp.take_along_axis(values, jnp.clip(index, 0, values.shape[1] - 1).astype(jnp.int32), axis=1)


def _inverse(weights: jax.Array, number: jax.Array) -> jax.Array:
    """[S] where the running sum of weights [S, n] passes number [S, 1] of its total; never an element of weight 0."""
    mass, index = jnp.cumsum(weights, axis=-1), jnp.arange(weights.shape[1])
    passed = (mass > number * mass[:, -1:]) & (weights > 0)
    return jnp.minimum(jnp.where(passed, index, len(index)).min(-1), jnp.where(weights > 0, index, 0).max(-1))
