"""A decoder of the Llama lineage (Touvron et al., 2023) as pure functions of its weights and its cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anychip.plugin import UserError

FAMILIES = ("llama", "mistral")
ATTENTION, FEED_FORWARD = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")
LAYER = (*NORMS, *(f"self_attn.{name}" for name in ATTENTION), *(f"mlp.{name}" for name in FEED_FORWARD))
TOP = ("model.embed_tokens", "model.norm", "lm_head")
IGNORED = ("lm_head.weight", "rotary_emb.inv_freq")  # where tied, and what is computed
AT_ONCE = 8  # pieces whose attention is computed together
Weights = dict[str, jax.Array]


class Shape(NamedTuple):
    """What a config says and weights do not show."""

    layers: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int
    eps: float
    theta: float
    window: int | None
    tied: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape:
        """Out of config.json. Raises `UserError` for what is not computed here."""
        rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        biased = config.get("attention_bias") or config.get("mlp_bias")
        if config.get("model_type") not in FAMILIES or kind != "default" or biased or config["hidden_act"] != "silu":
            remedy = f"It runs {' and '.join(FAMILIES)}, without biases and without rope scaling."
            raise UserError(f"The example in JAX does not run this {config.get('model_type')} model.", remedy)
        layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads") or heads
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        vocab, positions = config["vocab_size"], config["max_position_embeddings"]
        eps, theta = config["rms_norm_eps"], rope.get("rope_theta") or config.get("rope_theta") or 10000.0
        window, tied = config.get("sliding_window"), bool(config.get("tie_word_embeddings"))
        return cls(layers, kv_heads, head_dim, vocab, positions, eps, theta, window, tied)


class Tokens(NamedTuple):
    """A step's T tokens, padded, and G pieces of up to Q of them, each of one row with B blocks."""

    ids: Any  # [T]; below 0 where the row's newest token never left the device
    rows: Any  # [T] stable rows
    positions: Any  # [T]
    blocks: Any  # [T] where each token's key and value go: the null block for padding
    pieces: Any  # [G, Q] indices of tokens, T for padding
    tables: Any  # [G, B]


def load(shape: Shape, given: Iterable[tuple[str, Any]], dtype: str, device: jax.Device) -> tuple[Weights, Weights]:
    """Weights by name, and those of all layers stacked. Raises `UserError` naming a tensor that should not be so."""
    top, layers = TOP[: 2 if shape.tied else 3], range(shape.layers)
    wanted = {f"model.layers.{layer}.{name}.weight": (name, layer) for name in LAYER for layer in layers}
    wanted |= {f"{name}.weight": (name, -1) for name in top}
    found: dict[tuple[str, int], jax.Array] = {}
    for name, values in given:
        if name in wanted:
            found[wanted.pop(name)] = jax.device_put(jnp.asarray(values, dtype), device)
        elif not name.endswith(IGNORED):
            raise UserError(f"The checkpoint has {name}, which a model of this kind has not.")
    if wanted:
        raise UserError(f"The checkpoint lacks {min(wanted)}.", "Download it again.")
    stacks = {name: jnp.stack([found.pop((name, layer)) for layer in layers]) for name in LAYER}
    return {name: found[name, -1] for name in top}, stacks


@partial(jax.jit, static_argnames="shape", donate_argnames="cache")
def forward(
    shape: Shape, weights: tuple[Weights, Weights], cache: jax.Array, newest: jax.Array, tokens: Tokens
) -> tuple[jax.Array, jax.Array]:
    """Hidden states [T, H] after the last norm, and the cache with this step's keys and values.

    cache [layers, 2, blocks, block size, kv heads, head dim]; newest [rows] holds the last token of each row.
    """
    top, layers = weights
    turn = _rotation(shape, tokens.positions)

    def layer(carry: tuple[jax.Array, jax.Array], each: tuple[Weights, jax.Array]) -> Any:
        (x, cache), (own, number) = carry, each
        normed = _norm(x, own["input_layernorm"], shape.eps)
        q, k, v = ((normed @ own[f"self_attn.{name}_proj"].T).reshape(len(x), -1, shape.head_dim) for name in "qkv")
        entries = jnp.stack([_rotate(k, turn), v], axis=1)
        cache = cache.at[number, :, tokens.blocks, tokens.positions % cache.shape[3]].set(entries)
        attended = _attention(shape, _rotate(q, turn), cache, number, tokens)
        x = x + attended.reshape(len(x), -1) @ own["self_attn.o_proj"].T
        normed = _norm(x, own["post_attention_layernorm"], shape.eps)
        gated = jax.nn.silu(normed @ own["mlp.gate_proj"].T) * (normed @ own["mlp.up_proj"].T)
        return (x + gated @ own["mlp.down_proj"].T, cache), None

    ids = jnp.where(tokens.ids < 0, newest[tokens.rows], tokens.ids)
    start = (top["model.embed_tokens"][ids], cache)
    (x, cache), _ = jax.lax.scan(layer, start, (layers, jnp.arange(shape.layers)))
    return _norm(x, top["model.norm"], shape.eps), cache


@partial(jax.jit, static_argnames="shape")
def logits(shape: Shape, weights: tuple[Weights, Weights], hidden: jax.Array, at: Any) -> jax.Array:
    """Of S of the tokens: hidden [T, H], at [S] -> [S, V] float32."""
    head = weights[0]["model.embed_tokens" if shape.tied else "lm_head"]
    return jnp.matmul(hidden[at], head.T, preferred_element_type=jnp.float32)


def _attention(shape: Shape, q: jax.Array, cache: jax.Array, layer: jax.Array, tokens: Tokens) -> jax.Array:
    """[T, M, N/M, D]: each piece of a row against its row's blocks, the step's own entries included."""
    queries = q.reshape(len(q), shape.kv_heads, -1, shape.head_dim)

    def attend(piece: tuple[jax.Array, jax.Array]) -> jax.Array:
        places, table = piece
        k, v = (cache[layer, plane, table].reshape(-1, shape.kv_heads, shape.head_dim) for plane in (0, 1))
        mine, positions = (values.at[places].get(mode="clip") for values in (queries, tokens.positions))
        distance = positions[:, None] - jnp.arange(len(k))
        seen = (distance >= 0) & (distance < (shape.window or shape.positions))
        scores = jnp.einsum("qmrd,smd->mrqs", mine, k, preferred_element_type=jnp.float32) * shape.head_dim**-0.5
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        v = jnp.where(seen.any(0)[:, None, None], v, 0)  # others' entries may be no numbers, and 0 * nan is nan
        return jnp.einsum("mrqs,smd->qmrd", shares.astype(v.dtype), v)

    found = jax.lax.map(attend, (tokens.pieces, tokens.tables), batch_size=AT_ONCE)
    return jnp.zeros_like(queries).at[tokens.pieces].set(found, mode="drop")


def _norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + eps) * weight).astype(x.dtype)


def _rotation(shape: Shape, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines [T, 1, D/2] (Su et al., 2021)."""
    steps = np.arange(0, shape.head_dim, 2, dtype=np.float32) / shape.head_dim
    angles = positions[:, None, None] * (1.0 / np.float32(shape.theta) ** steps)
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(x: jax.Array, turn: tuple[jax.Array, jax.Array]) -> jax.Array:
    (first, second), (cosines, sines) = jnp.split(x.astype(jnp.float32), 2, axis=-1), turn
    return jnp.concatenate([first * cosines - second * sines, second * cosines + first * sines], -1).astype(x.dtype)
