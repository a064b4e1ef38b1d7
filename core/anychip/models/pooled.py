"""A model that gives one vector for each prompt: another model's body, a pooling, and perhaps a head."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from anychip.models.loading import checkpoint_slots
from anychip.models.model import Model
from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.contract import KVSpec
from anychip.plugin.tasks import PoolingKind, Task

HEADS = re.compile(r"^(lm_head|score|classifier|pre_classifier|pooler)\.")
"""Tensors of a checkpoint that serve another task than the one the model is loaded for."""


class PooledModel(Model):
    """`forward` gives hidden states of `body`; the runner pools them; `vectors` makes embeddings or labels of those."""

    def __init__(
        self, body: Model, pooling: PoolingKind, vector_size: int, head: nn.Module | None, dtype: torch.dtype
    ) -> None:
        nn.Module.__init__(self)
        body.drop_output()
        self.body, self.head, self.dtype = body, head, dtype
        self.root = f"body.{body.root}"
        self.ties = {}
        self.kv_specs: tuple[KVSpec, ...] = body.kv_specs
        self.vocab_size, self.max_model_len = body.vocab_size, body.max_model_len
        self.hidden_size, self.vector_size = body.hidden_size, vector_size
        self.tells_texts_apart = body.tells_texts_apart
        self.pooling = pooling

    @classmethod
    def op_spec(cls, config: Mapping[str, Any], dtype: str, block_size: int) -> OpSpec:
        """The body's class knows it."""
        raise AssertionError("ask the body's class")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be asked for."""
        if self.head is None:
            return ("embed", "score")
        return ("classify", "score") if self.vector_size == 1 else ("classify",)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """See `Model.forward`."""
        hidden: torch.Tensor = self.body(token_ids, positions, step)
        return hidden

    def vectors(self, pooled: torch.Tensor) -> torch.Tensor:
        """Pooled states [P, H] -> embeddings or labels [P, vector_size], both float32."""
        if self.head is None:
            return pooled
        labels: torch.Tensor = self.head(pooled.to(self.dtype))
        return labels.float()

    def drop_output(self) -> None:
        """There is none."""

    def translate(self, stream: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The body's translation; a checkpoint of a bare decoder lacks the body's name, and the head has one here."""
        slots = checkpoint_slots(self)
        for name, tensor in self.body.translate(stream):
            candidates = (name, f"model.{name}", f"head.{name}")
            yield next((each for each in candidates if each in slots), name), tensor

    def is_superfluous(self, name: str) -> bool:
        """See `Model.is_superfluous`."""
        return HEADS.search(name) is not None or self.body.is_superfluous(name)


def embedding_model(body: Model, pooling: PoolingKind | None, dtype: torch.dtype) -> PooledModel:
    """The model that embeds texts by the hidden states of `body`."""
    return PooledModel(body, pooling or body.embedding_pooling, body.hidden_size, None, dtype)


def classifying_model(body: Model, config: Mapping[str, Any], ops: Ops, dtype: torch.dtype) -> PooledModel:
    """The model that gives each label of config.json a number."""
    labels = count_labels(config)
    return PooledModel(body, body.label_pooling, labels, body.label_head(ops, dtype, labels), dtype)


def count_labels(config: Mapping[str, Any]) -> int:
    """How many labels config.json names; 2 where it names none, as transformers has it."""
    named = config.get("id2label") or config.get("label2id")
    return len(named) if named else int(config.get("num_labels") or 2)
