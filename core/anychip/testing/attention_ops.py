"""The attention family on level 1.

Its cache and plan are the platform's own, so its ops are seen through each other: what is written is what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from anychip.ops.attention import AttentionInputs
from anychip.ops.attention_cases import AttentionCase, batch_inputs, filled_cache, inputs_to
from anychip.ops.norm import EPSILON
from anychip.ops.op import Op
from anychip.ops.parts import Ops
from anychip.ops.rope import rotation_table
from anychip.ops.shapes import dtype_of, normal
from anychip.testing.compare import Guarded, difference, wide
from anychip.testing.op_checks import SEED, AttentionCases, Bound

Trials = Iterator[tuple[str, Callable[[], str]]]


def attention_trials(op: Op, bound: Bound, tolerance: float, cases: AttentionCases) -> Trials:
    """(label, trial) of each of the `cases` that shows what `op` does."""
    trial = {
        "new_cache": _try_recycled,
        "plan_attention": _try_attention,
        "kv_write": _try_neighbours,
        "copy_blocks": _try_copy,
        "paged_attention": _try_attention,
        "qk_norm_rope_kv_write": _try_rotated,
    }[op.name]
    for case in cases(torch.Generator().manual_seed(SEED), bound.spec):
        yield case.label, partial(trial, bound, tolerance, case)


def _try_attention(bound: Bound, tolerance: float, case: AttentionCase) -> str:
    """Write history and step, attend: against the reference, with guard bands around queries, keys and values."""
    guards = [Guarded(tensor, bound.platform.device) for tensor in (case.q, case.k, case.v)]
    q, k, v = (guard.tensor for guard in guards)
    there = replace(_there(bound, case), q=q, k=k, v=v)
    result = _attend(bound.ops, there, *_written(bound.ops, there))
    bound.platform.synchronize()
    problem = _compare(bound, tolerance, result, _reference(bound, case))
    return problem or next(filter(None, (guard.problem() for guard in guards)), "")


def _try_recycled(bound: Bound, tolerance: float, case: AttentionCase) -> str:
    """Blocks, the null block too, that held what is no number before: none of it may be seen."""
    there = _there(bound, case)
    cache = bound.ops.new_cache(case.spec, case.num_blocks, case.block_size, bound.platform.device)
    _fill(bound, case, cache, float("nan"))
    cache, plan = _replay(bound.ops, there, cache)
    result = _attend(bound.ops, there, cache, plan)
    return _compare(bound, tolerance, result, _reference(bound, case))


def _try_neighbours(bound: Bound, tolerance: float, case: AttentionCase) -> str:
    """Writing a step changes nothing that was cached: what the rows' histories attend to is bit for bit the same."""
    if case.history is None:
        return _try_attention(bound, tolerance, case)
    there = _there(bound, case)
    cache, plan = filled_cache(bound.ops, there)
    rows = np.flatnonzero(case.inputs.host_seq_lens > np.diff(case.inputs.host_query_start))
    lengths = (case.inputs.host_seq_lens - np.diff(case.inputs.host_query_start))[rows]
    table = case.inputs.block_table.numpy()[rows]
    again = inputs_to(batch_inputs(tuple((int(n) - 1, 1) for n in lengths), table), bound.platform.device)
    probe = replace(there, inputs=again, q=there.q[:1].expand(len(rows), -1, -1).contiguous())
    look = bound.ops.plan_attention(again, case.spec, case.block_size)
    before = _attend(bound.ops, probe, cache, look).cpu()
    bound.ops.kv_write(there.k, there.v, cache, plan)
    after = _attend(bound.ops, probe, cache, look).cpu()
    if not torch.equal(before, after):
        return "writing a step changed what was cached before"
    result = _attend(bound.ops, there, cache, plan)
    return _compare(bound, tolerance, result, _reference(bound, case))


def _try_copy(bound: Bound, tolerance: float, case: AttentionCase) -> str:
    """The first block of a row with history copied to a new block, which takes its place in the table."""
    if case.history is None:
        return ""
    there = _there(bound, replace(case, num_blocks=case.num_blocks + 1))
    row = int(np.flatnonzero(case.inputs.host_seq_lens > np.diff(case.inputs.host_query_start))[0])
    old = int(case.inputs.block_table[row, 0])
    cache, _ = filled_cache(bound.ops, there)
    pair = (torch.tensor([number], device=bound.platform.device) for number in (old, case.num_blocks))
    bound.ops.copy_blocks(cache, *pair)
    _fill(bound, case, cache, 3.0, (old,))
    table = there.inputs.block_table.clone()
    table[row, 0] = case.num_blocks
    redirected = replace(there, inputs=replace(there.inputs, block_table=table))
    plan = bound.ops.plan_attention(redirected.inputs, case.spec, case.block_size)
    bound.ops.kv_write(redirected.k, redirected.v, cache, plan)
    result = _attend(bound.ops, redirected, cache, plan)
    return _compare(bound, tolerance, result, _reference(bound, case))


def _try_rotated(bound: Bound, tolerance: float, case: AttentionCase) -> str:
    """The composite in place of `kv_write`, then attention with the queries it returns."""
    generator = torch.Generator().manual_seed(SEED)
    norms = normal(generator, 2, bound.spec.head_dim, dtype=bound.spec.dtype).unbind()
    weights = norms if case.spec.window is None else (None, None)
    table = rotation_table(bound.spec.head_dim, length=max(256, case.inputs.max_seq))
    there = _there(bound, case)
    result = _rotate_and_attend(bound.ops, there, weights, table.to(bound.platform.device))
    reference = _rotate_and_attend(bound.references, _wide(case), tuple(map(wide, weights)), table)
    return _compare(bound, tolerance, result, reference)


def _rotate_and_attend(
    ops: Ops, case: AttentionCase, norms: tuple[torch.Tensor | None, ...], table: torch.Tensor
) -> torch.Tensor:
    device = case.q.device
    q_norm, k_norm = (None if norm is None else norm.to(device) for norm in norms)
    cache, plan = filled_cache(ops, case)
    q = ops.qk_norm_rope_kv_write(
        case.q, case.k, case.v, q_norm, k_norm, EPSILON, case.inputs.positions, table, cache, plan
    )
    return _attend(ops, replace(case, q=q), cache, plan)


def _written(ops: Ops, case: AttentionCase) -> tuple[Any, Any]:
    cache, plan = filled_cache(ops, case)
    ops.kv_write(case.k, case.v, cache, plan)
    return cache, plan


def _replay(ops: Ops, case: AttentionCase, cache: Any) -> tuple[Any, Any]:
    """History and step written into a cache that was in use."""
    if case.history is not None:
        plan = ops.plan_attention(case.history, case.spec, case.block_size)
        ops.kv_write(case.history_k, case.history_v, cache, plan)
    plan = ops.plan_attention(case.inputs, case.spec, case.block_size)
    ops.kv_write(case.k, case.v, cache, plan)
    return cache, plan


def _fill(bound: Bound, case: AttentionCase, cache: Any, value: float, blocks: tuple[int, ...] = ()) -> None:
    """Write `value` into every entry of some blocks, or of all."""
    numbers = np.array(blocks or range(case.num_blocks), np.int32)
    inputs = batch_inputs(((0, case.block_size),) * len(numbers), numbers[:, None])
    filling: AttentionInputs = inputs_to(inputs, bound.platform.device)
    plan = bound.ops.plan_attention(filling, case.spec, case.block_size)
    shape = (len(numbers) * case.block_size, *case.k.shape[1:])
    values = torch.full(shape, value, dtype=case.k.dtype, device=bound.platform.device)
    bound.ops.kv_write(values, values.clone(), cache, plan)


def _attend(ops: Ops, case: AttentionCase, cache: Any, plan: Any) -> torch.Tensor:
    return ops.paged_attention(case.q, cache, plan, case.scale, case.softcap, case.sinks)


def _reference(bound: Bound, case: AttentionCase) -> torch.Tensor:
    wide_case = _wide(case)
    return _attend(bound.references, wide_case, *_written(bound.references, wide_case))


def _compare(bound: Bound, tolerance: float, result: torch.Tensor, reference: torch.Tensor) -> str:
    return difference(result, reference, bound.dtype, tolerance)


def _there(bound: Bound, case: AttentionCase) -> AttentionCase:
    return case.to(bound.platform.device)


def _wide(case: AttentionCase) -> AttentionCase:
    """The same in float32; codes stay codes."""
    whole = {plane for plane in case.spec.planes if dtype_of(plane.dtype) == case.k.dtype}
    planes = tuple(replace(plane, dtype="float32") if plane in whole else plane for plane in case.spec.planes)
    return replace(
        case,
        spec=replace(case.spec, planes=planes),
        history_k=case.history_k.float(),
        history_v=case.history_v.float(),
        q=case.q.float(),
        k=case.k.float(),
        v=case.v.float(),
        sinks=None if case.sinks is None else case.sinks.float(),
    )
