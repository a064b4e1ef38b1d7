"""The Pallas kernel in interpret mode, against the reference op over the kit's generated cases."""

import pytest

jax = pytest.importorskip("jax", reason="JAX has an environment of its own: ci/lane_pallas.sh")

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import torch

from anychip.ops.attention import KVCache, kv_write, paged_attention
from anychip.ops.attention_cases import attention_cases, reference_cache
from anychip.ops.op import OpSpec
from anychip_tpu.pallas.attention import QUERIES, padded_head_size, ragged_paged_attention

TOLERANCE = {"float32": 1e-6, "bfloat16": 4e-3}
WINDOW = 24
SPEC = OpSpec(
    dtype="float32",
    hidden_size=256,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    vocab_size=97,
    intermediate_size=64,
    block_size=16,
    windows=(WINDOW,),
)


def made(label, **changes):
    """A generated case, and its cache in the reference's layout with all tokens written."""
    spec = replace(SPEC, **changes)
    case = next(one for one in attention_cases(torch.Generator().manual_seed(1), spec) if one.label == label)
    cache, plan = reference_cache(case)
    kv_write(case.k, case.v, cache, plan)
    return case, cache, plan


def wanted(case, cache, plan):
    wide = KVCache(cache.k.float(), cache.v.float())
    return paged_attention(case.q.float(), wide, plan, case.scale, case.softcap).numpy()


def to_jax(tensor):
    array = jnp.asarray(tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy())
    return array.astype(jnp.bfloat16) if tensor.dtype == torch.bfloat16 else array


def pages(plane):
    """[blocks, entries, M, D] as the kernel has it: heads first, whole registers."""
    filled = torch.nn.functional.pad(plane, (0, padded_head_size(plane.shape[-1]) - plane.shape[-1]))
    return to_jax(filled.permute(2, 0, 1, 3).contiguous())


def attended(case, cache, q=None, table=None, starts=None, lengths=None):
    given = (
        to_jax(case.q if q is None else q),
        pages(cache.k),
        pages(cache.v),
        to_jax(case.inputs.block_table if table is None else table),
        to_jax(case.inputs.query_start if starts is None else starts),
        to_jax(case.inputs.seq_lens if lengths is None else lengths),
    )
    options = {"scale": case.scale, "window": case.spec.window, "soft_cap": case.softcap or None}
    found = ragged_paged_attention(*given, **options, interpret=True)
    assert found.dtype == given[0].dtype
    return np.asarray(found.astype(jnp.float32))


def error(found, right):
    return np.linalg.norm(found - right) / np.linalg.norm(right)


@pytest.mark.parametrize("label", ["one token", "decode", "prefill", "chunks", "mixed"])
@pytest.mark.parametrize("window", ["", f", window {WINDOW}"])
def test_batches_are_those_of_the_reference(label, window):
    case, cache, plan = made(label + window)
    assert error(attended(case, cache), wanted(case, cache, plan)) < TOLERANCE["float32"]


@pytest.mark.parametrize(
    ("dtype", "head_dim", "heads", "softcap", "block_size"),
    [
        ("bfloat16", 128, 4, False, 32),
        ("bfloat16", 64, 14, True, 16),
        ("float32", 80, 6, True, 64),
        ("float32", 128, 2, False, 128),
    ],
)
def test_shapes_are_those_of_the_reference(dtype, head_dim, heads, softcap, block_size):
    changes = {"head_dim": head_dim, "num_heads": heads, "softcap": softcap, "block_size": block_size}
    case, cache, plan = made("mixed", dtype=dtype, **changes)
    assert error(attended(case, cache), wanted(case, cache, plan)) < TOLERANCE[dtype]


@pytest.mark.parametrize("label", ["decode", f"mixed, window {WINDOW}"])
def test_padding_is_inert(label):
    """Tokens behind the last row, empty rows in between and at the end, wider tables, and pages of no numbers."""
    case, cache, _ = made(label)
    right = attended(case, cache)
    used = case.inputs.block_table.unique()
    for plane in cache.planes:
        unused = torch.ones(len(plane), dtype=torch.bool)
        unused[used[used > 0].long()] = False
        plane[unused] = float("nan")
    more = len(case.q) + QUERIES + 3
    q = torch.full((more, *case.q.shape[1:]), float("nan"))
    q[: len(case.q)] = case.q
    table = torch.nn.functional.pad(case.inputs.block_table, (0, 3))
    table = torch.cat([table[:1], torch.zeros_like(table[:1]), table[1:], torch.zeros_like(table[:2])])
    starts, lengths = case.inputs.query_start, case.inputs.seq_lens
    starts = torch.cat([starts[:2], starts[1:], starts[-1:], starts[-1:]])
    lengths = torch.cat([lengths[:1], lengths[:1] * 0, lengths[1:], lengths[:2] * 0])
    found = attended(case, cache, q, table, starts, lengths)
    assert error(found[: len(case.q)], right) < TOLERANCE["float32"]
    assert not found[len(case.q) :].any()


def test_entries_behind_a_row_s_end_are_not_seen():
    """What an earlier request left in a row's last block."""
    case, cache, _ = made("mixed")
    right = attended(case, cache)
    for row, length in enumerate(case.inputs.host_seq_lens.tolist()):
        block, rest = divmod(length, SPEC.block_size)
        if rest:
            for plane in cache.planes:
                plane[int(case.inputs.block_table[row, block]), rest:] = float("nan")
    assert np.array_equal(attended(case, cache), right)


def test_another_row_s_pages_would_show():
    """The negative control: two rows' tables swapped, and a window one token short."""
    case, cache, plan = made(f"mixed, window {WINDOW}")
    right = wanted(case, cache, plan)
    table = case.inputs.block_table.clone()
    table[[1, 2]] = table[[2, 1]]
    assert error(attended(case, cache, table=table), right) > 0.05
    short = replace(case, spec=replace(case.spec, window=WINDOW - 1))
    assert error(attended(short, cache), right) > 0.01
