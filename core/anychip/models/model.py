"""What the runner asks of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from anychip.errors import UserError
from anychip.models.layers import Linear
from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.contract import KVSpec
from anychip.plugin.tasks import PoolingKind


class Model(nn.Module, ABC):
    """A language model over ragged tokens. Built on the meta device; `load_weights` brings it to a real one.

    Raises `UserError` for a config that the family cannot run.
    """

    kv_specs: tuple[KVSpec, ...]
    """One a layer, in order."""
    vocab_size: int
    max_model_len: int
    """Positions the model was made for."""
    root: str = ""
    """Prefix of a module's path that its name in the checkpoint lacks."""
    ties: Mapping[str, str]
    """Linears that share another module's weight: path of the Linear -> path of the module that owns it."""
    hidden_size: int = 0
    generates: ClassVar[bool] = True
    """Whether it has `logits`; an encoder has not."""
    tells_texts_apart: bool = False
    """Whether `forward` reads `StepContext.text_ids`."""
    embedding_pooling: ClassVar[PoolingKind] = "last"
    """How its hidden states become an embedding unless its files say otherwise."""
    label_pooling: ClassVar[PoolingKind] = "last"
    """Which hidden state its classification head reads."""

    @abstractmethod
    def __init__(
        self, config: Mapping[str, Any], ops: Ops, dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        """Build from config.json's content, without memory for weights; serve up to `max_model_len` positions."""
        super().__init__()

    @classmethod
    @abstractmethod
    def op_spec(cls, config: Mapping[str, Any], dtype: str, block_size: int) -> OpSpec:
        """The shapes ops will be called with, known before the model is built so that `bind` can run first."""

    @abstractmethod
    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """Hidden states [T, H] of token_ids [T] at positions [T], after the last norm; writes the caches.

        Where `step.wanted` names some tokens, a model may give theirs alone, [L, H].
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[L, H] -> [L, V], in the model's dtype."""
        raise AssertionError("a model that generates nothing was asked for logits")

    def drop_output(self) -> None:
        """Drop the modules that only `logits` needs; called before weights are loaded, if vectors are wanted."""
        raise UserError("This model can only generate.", "Leave --task out.")

    def label_head(self, ops: Ops, dtype: torch.dtype, labels: int) -> nn.Module:
        """The classification head, [P, H] -> [P, labels], its parts named as in checkpoints."""
        return ScoreHead(ops, self.hidden_size, dtype, labels)

    def translate(self, stream: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Map names and layouts of a checkpoint's tensors to those of the modules; by default they are the same.

        Values are tensors, or a `Weight` where the checkpoint's format is kept: only for models that do not override
        this.
        """
        return stream

    def is_superfluous(self, name: str) -> bool:
        """Whether a checkpoint tensor for which the model has no place may be skipped; others are an error."""
        return False


class ScoreHead(nn.Module):
    """The head of a decoder that classifies: one matrix."""

    def __init__(self, ops: Ops, hidden_size: int, dtype: torch.dtype, labels: int) -> None:
        super().__init__()
        self.score = Linear(ops, hidden_size, {"score": labels}, dtype, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[P, H] -> [P, labels]."""
        labels: torch.Tensor = self.score(x)
        return labels
