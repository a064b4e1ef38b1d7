"""Scores of a group of four warps, 64 lines of queries against a tile of keys, and the running softmax (in Gluon)."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

LINES = gl.constexpr(64)
"""Of a group."""
LOWEST = gl.constexpr(-1.0e30)
LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def begin(sinks, LINE: gl.constexpr, tokens, kv_head, LAYOUT: gl.constexpr, SHAPE: gl.constexpr):
    """Each line's position, highest score and mass before any key: a sink is a score without a value."""
    first, stop, position = tokens
    G: gl.constexpr = SHAPE[0]
    SINKS: gl.constexpr = SHAPE[4]
    TOKENS: gl.constexpr = SHAPE[5]
    line = LINE + gl.arange(0, LINES, LAYOUT)
    held = (first + line // G < stop) & (line < TOKENS * G)
    if SINKS:
        highest = gl.load(sinks + kv_head * G + line % G, mask=held, other=0.0).to(gl.float32) * LOG2_E
        mass = gl.full([LINES], 1.0, gl.float32, LAYOUT)
    else:
        highest = gl.full([LINES], LOWEST, gl.float32, LAYOUT)
        mass = gl.zeros([LINES], gl.float32, LAYOUT)
    return gl.where(held, position + line // G, position), highest, mass


@gluon.jit
def score(queries, keys, nothing, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr):
    """The products of queries and a tile of keys, under way."""
    turned = keys.reshape([BLOCK_N, BLOCK_D]).permute([1, 0])
    return warpgroup_mma(queries, turned, nothing, use_acc=False, is_async=True)


@gluon.jit
def seen(scores, seeing, start, scoring, LAYOUT: gl.constexpr, SHAPE: gl.constexpr):
    """Products with keys from `start` on: capped, and as low as can be where a query does not see a key."""
    position, first_position, end, length = seeing
    _sinks, scale, softcap = scoring
    WINDOW: gl.constexpr = SHAPE[2]
    SOFTCAP: gl.constexpr = SHAPE[3]
    PART: gl.constexpr = SHAPE[6]
    BLOCK_N: gl.constexpr = SHAPE[7]
    if SOFTCAP:
        scores = softcap * LOG2_E * (1.0 - 2.0 / (1.0 + gl.exp2(scores * (scale * 2.0 * LOG2_E / softcap))))
    partly = start + BLOCK_N > first_position + 1
    if WINDOW > 0:
        partly = partly | (start < end - WINDOW)
    if partly:
        nominal = start + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))
        first = nominal // PART * PART
        key = nominal - gl.maximum(first + PART - length, 0)
        there = ((key >= first) & (first < end))[None, :]
        key = key[None, :]
        visible = there & (key <= position[:, None])
        if WINDOW > 0:
            visible = visible & (key > position[:, None] - WINDOW)
        scores = gl.where(visible, scores, float("-inf"))
    return scores


@gluon.jit
def weigh(scores, highest, mass, scale, SOFTCAP: gl.constexpr):
    """Weights of scores, what earlier sums shrink by, and the running softmax; without a cap scores are scaled here."""
    factor = 1.0 if SOFTCAP else scale
    higher = gl.maximum(highest, gl.max(scores, 1) * factor)
    weights = gl.exp2(scores * factor - higher[:, None])
    shrink = gl.exp2(highest - higher)
    return weights, shrink, higher, mass * shrink + gl.sum(weights, 1)
