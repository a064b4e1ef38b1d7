"""A model on reference ops without the runner: one paged cache a layer, shuffled blocks, any split into steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anychip.models.loading import load_weights
from anychip.models.model import Model
from anychip.models.registry import model_class
from anychip.models.step import StepContext
from anychip.ops.attention import AttentionInputs
from anychip.ops.bind import bind
from anychip.ops.parts import Ops
from anychip.ops.shapes import dtype_of

BLOCK_SIZE = 4
BLOCKS_PER_ROW = 24


def load(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], dtype: str = "float32") -> tuple[Model, Ops]:
    """The model for `config` on reference ops."""
    family = model_class(config)
    ops = bind({}, family.op_spec(config, dtype, BLOCK_SIZE))
    model = family(config, ops, dtype_of(dtype))
    load_weights(model, iter(tensors.items()), "cpu", lambda weight: weight)
    return model, ops


@dataclass
class Rows:
    """Requests in progress on one model: what each has cached, and where."""

    model: Model
    ops: Ops
    count: int
    tables: np.ndarray = field(init=False)
    lengths: list[int] = field(init=False)
    caches: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        blocks = np.random.default_rng(0).permutation(self.count * BLOCKS_PER_ROW).astype(np.int32) + 1
        self.tables = blocks.reshape(self.count, BLOCKS_PER_ROW)
        self.lengths = [0] * self.count
        self.caches = tuple(
            self.ops.new_cache(spec, self.count * BLOCKS_PER_ROW + 1, BLOCK_SIZE, "cpu") for spec in self.model.kv_specs
        )

    @torch.inference_mode()
    def step(self, tokens: dict[int, list[int]]) -> dict[int, torch.Tensor]:
        """Run the given rows' next tokens; logits [tokens, V] of each row. Rows with one token are put first."""
        rows = sorted(tokens, key=lambda row: len(tokens[row]) > 1)
        starts = [self.lengths[row] for row in rows]
        counts = [len(tokens[row]) for row in rows]
        positions = np.concatenate(
            [np.arange(start, start + count, dtype=np.int32) for start, count in zip(starts, counts, strict=True)]
        )
        inputs = AttentionInputs.from_host(
            positions=positions,
            query_start=np.cumsum([0, *counts], dtype=np.int32),
            seq_lens=np.array([start + count for start, count in zip(starts, counts, strict=True)], np.int32),
            block_table=self.tables[rows],
            num_single=sum(count == 1 for count in counts),
            device="cpu",
        )
        plans = {spec: self.ops.plan_attention(inputs, spec, BLOCK_SIZE) for spec in set(self.model.kv_specs)}
        context = StepContext(inputs.positions, tuple(plans[spec] for spec in self.model.kv_specs), self.caches)
        ids = torch.tensor([token for row in rows for token in tokens[row]], dtype=torch.int32)
        logits = self.model.logits(self.model(ids, inputs.positions, context))
        for row in rows:
            self.lengths[row] += len(tokens[row])
        return dict(zip(rows, logits.split(counts), strict=True))


def steps(
    model: Model, ops: Ops, prompts: list[list[int]], chunks: Callable[[int], Iterator[int]]
) -> list[torch.Tensor]:
    """Logits [len, V] of each prompt, all rows together; `chunks(row)` yields how many tokens each step takes."""
    rows = Rows(model, ops, len(prompts))
    sizes = [chunks(row) for row in range(len(prompts))]
    seen: list[list[torch.Tensor]] = [[] for _ in prompts]
    while any(rows.lengths[row] < len(prompt) for row, prompt in enumerate(prompts)):
        todo = {
            row: prompt[rows.lengths[row] : rows.lengths[row] + next(sizes[row])]
            for row, prompt in enumerate(prompts)
            if rows.lengths[row] < len(prompt)
        }
        for row, logits in rows.step(todo).items():
            seen[row].append(logits)
    return [torch.cat(parts) for parts in seen]


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """norm(found - wanted) / norm(wanted), in float64."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())
