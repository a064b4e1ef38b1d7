"""Ragged batches for the attention family, and how to run one on whatever caches and plans a provider has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from anychip.cache.storage import stored_as
from anychip.engine.batch import Int32
from anychip.ops.attention import AttentionInputs, kv_write, new_cache, plan_attention
from anychip.ops.op import Case, OpSpec
from anychip.ops.parts import Parts
from anychip.ops.shapes import normal, strided
from anychip.plugin.contract import KVSpec, Plane

ROWS: dict[str, tuple[tuple[int, int], ...]] = {
    "one token": ((0, 1),),
    "decode": ((5, 1), (31, 1), (16, 1), (0, 1), (63, 1)),
    "prefill": ((0, 37),),
    "chunks": ((23, 18), (16, 16), (0, 3)),
    "mixed": ((7, 1), (48, 1), (70, 29), (0, 40), (15, 2), (90, 1)),
    "prompts": ((9, 1), (30, 2), (5, 12), (0, 9)),
}
"""Batches as (tokens cached before, tokens of this step) of each row: blocks begun, filled and crossed."""
LONG: dict[str, tuple[tuple[int, int], ...]] = {
    "long prompts": ((200, 1), (100, 300), (0, 1100)),
    "long prompts, alike": ((0, 1024), (0, 1024)),
}
"""Prompts that a library may be worth, for models with few heads."""
WIDE: dict[str, tuple[tuple[int, int], ...]] = {
    "many heads": ((70, 1), (40, 60), (0, 110)),
    "many heads, one prompt": ((0, 160),),
}
"""Few tokens of many heads, which are as much work, and cheaper to check."""
MANY_HEADS = 16


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """One step over a cache with a history, for one layer."""

    label: str
    spec: KVSpec
    block_size: int
    num_blocks: int
    history: AttentionInputs | None
    """The step that wrote what is cached; None where nothing is."""
    history_k: torch.Tensor
    history_v: torch.Tensor
    inputs: AttentionInputs
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    softcap: float
    sinks: torch.Tensor | None

    def to(self, device: torch.device | str) -> AttentionCase:
        """The same case with its tensors on `device`."""
        return replace(
            self,
            history=None if self.history is None else inputs_to(self.history, device),
            inputs=inputs_to(self.inputs, device),
            history_k=self.history_k.to(device),
            history_v=self.history_v.to(device),
            q=self.q.to(device),
            k=self.k.to(device),
            v=self.v.to(device),
            sinks=None if self.sinks is None else self.sinks.to(device),
        )


def inputs_to(inputs: AttentionInputs, device: torch.device | str) -> AttentionInputs:
    """The same inputs with their device arrays on `device`."""
    return replace(
        inputs,
        positions=inputs.positions.to(device),
        query_start=inputs.query_start.to(device),
        seq_lens=inputs.seq_lens.to(device),
        block_table=inputs.block_table.to(device),
    )


def run_attention_case(ops: Parts, case: AttentionCase) -> torch.Tensor:
    """Write the history and the step, then attend, all through `ops`. -> [T, N, D]."""
    cache, plan = filled_cache(ops, case)
    ops.kv_write(case.k, case.v, cache, plan)
    return ops.paged_attention(case.q, cache, plan, case.scale, case.softcap, case.sinks)


def filled_cache(ops: Parts, case: AttentionCase) -> tuple[Any, Any]:
    """A provider's cache that holds the case's history, and its plan of the case's step."""
    cache = ops.new_cache(case.spec, case.num_blocks, case.block_size, case.q.device)
    if case.history is not None:
        plan = ops.plan_attention(case.history, case.spec, case.block_size)
        ops.kv_write(case.history_k, case.history_v, cache, plan)
    return cache, ops.plan_attention(case.inputs, case.spec, case.block_size)


def attention_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[AttentionCase]:
    """Every batch of ROWS, full and with each window of `spec`; blocks shuffled; inputs strided in the last one."""
    for window in (None, *spec.windows):
        for label, rows in ROWS.items():
            yield _case(generator, spec, label if window is None else f"{label}, window {window}", rows, window)
    yield _with_strided_inputs(_case(generator, spec, "strided", ROWS["mixed"], None))


def large_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[AttentionCase]:
    """Batches that are so much work that an implementation may take another way; see `large_specs`."""
    for label, rows in (WIDE if spec.num_heads > MANY_HEADS else LONG).items():
        yield _case(generator, spec, label, rows, None)


def batch_inputs(rows: tuple[tuple[int, int], ...], table: Int32) -> AttentionInputs:
    """Inputs of a step whose rows have (cached, new) tokens, on the host."""
    new = [count for _, count in rows]
    singles = next((index for index, count in enumerate(new) if count != 1), len(new))
    return AttentionInputs.from_host(
        positions=np.concatenate([np.arange(cached, cached + count, dtype=np.int32) for cached, count in rows]),
        query_start=np.cumsum([0, *new], dtype=np.int32),
        seq_lens=np.array([cached + count for cached, count in rows], np.int32),
        block_table=table,
        num_single=singles,
        device="cpu",
    )


def shuffled_table(generator: torch.Generator, lengths: list[int], block_size: int) -> tuple[Int32, int]:
    """A block table [R, B] of blocks in random order, padded with NULL_BLOCK, and the number of blocks with it."""
    counts = [-(-length // block_size) for length in lengths]
    blocks = torch.randperm(sum(counts), generator=generator).numpy().astype(np.int32) + 1
    table = np.zeros((len(lengths), max(counts)), np.int32)
    for row, (count, begin) in enumerate(zip(counts, np.cumsum([0, *counts]), strict=False)):
        table[row, :count] = blocks[begin : begin + count]
    return table, sum(counts) + 1


def _case(
    generator: torch.Generator, spec: OpSpec, label: str, rows: tuple[tuple[int, int], ...], window: int | None
) -> AttentionCase:
    shape = (spec.num_kv_heads, spec.head_dim)
    planes = (Plane("k", shape, spec.dtype), Plane("v", shape, spec.dtype))
    kv_spec = KVSpec("full" if window is None else "sliding", planes, window)
    table, num_blocks = shuffled_table(generator, [sum(row) for row in rows], spec.block_size)
    cached = tuple((0, before) for before, _ in rows if before)
    history = batch_inputs(cached, table[[before > 0 for before, _ in rows]]) if cached else None
    before, tokens = (sum(column) for column in zip(*rows, strict=True))
    return AttentionCase(
        label=label,
        spec=stored_as(kv_spec, spec.kv_dtype or "auto"),
        block_size=spec.block_size,
        num_blocks=num_blocks,
        history=history,
        history_k=normal(generator, before, *shape, dtype=spec.dtype),
        history_v=normal(generator, before, *shape, dtype=spec.dtype),
        inputs=batch_inputs(rows, table),
        q=normal(generator, tokens, spec.num_heads, spec.head_dim, dtype=spec.dtype),
        k=normal(generator, tokens, *shape, dtype=spec.dtype),
        v=normal(generator, tokens, *shape, dtype=spec.dtype),
        scale=spec.head_dim**-0.5,
        softcap=5.0 if spec.softcap else 0.0,
        sinks=normal(generator, spec.num_heads, dtype=spec.dtype) if spec.sinks else None,
    )


def _with_strided_inputs(case: AttentionCase) -> AttentionCase:
    return replace(case, q=strided(case.q), k=strided(case.k), v=strided(case.v))


def reference_cache(case: AttentionCase) -> tuple[Any, Any]:
    """The case's history in the reference's own cache, and the plan of its step."""
    cache = new_cache(case.spec, case.num_blocks, case.block_size, "cpu")
    for plane in cache.planes:
        plane.zero_()  # entries never written are compared too
    if case.history is not None:
        plan = plan_attention(case.history, case.spec, case.block_size)
        kv_write(case.history_k, case.history_v, cache, plan)
    return cache, plan_attention(case.inputs, case.spec, case.block_size)


def new_cache_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Cases of `new_cache`."""
    for case in attention_cases(generator, spec):
        yield Case(case.label, (case.spec, case.num_blocks, case.block_size, "cpu"))


def copy_blocks_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Cases of `copy_blocks`, in the reference's layout."""
    for case in attention_cases(generator, spec):
        cache, _ = reference_cache(case)
        yield Case(case.label, (cache, torch.tensor([case.num_blocks - 1]), torch.tensor([1])), writes=(0,))


def plan_attention_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Cases of `plan_attention`."""
    for case in attention_cases(generator, spec):
        yield Case(case.label, (case.inputs, case.spec, case.block_size))


def kv_write_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Cases of `kv_write`, in the reference's layout."""
    for case in attention_cases(generator, spec):
        yield Case(case.label, (case.k, case.v, *reference_cache(case)), writes=(2,))


def paged_attention_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    """Cases of `paged_attention`, in the reference's layout."""
    for case in attention_cases(generator, spec):
        cache, plan = reference_cache(case)
        kv_write(case.k, case.v, cache, plan)
        yield Case(case.label, (case.q, cache, plan, case.scale, case.softcap, case.sinks))
