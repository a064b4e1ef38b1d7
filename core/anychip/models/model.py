"""What the runner asks of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.contract import KVSpec


class Model(nn.Module, ABC):
    """A causal language model over ragged tokens. Built on the meta device; `load_weights` brings it to a real one.

    Raises `UserError` for a config that the family cannot run.
    """

    kv_specs: tuple[KVSpec, ...]
    """One a layer, in order."""
    vocab_size: int
    max_model_len: int
    """Positions the model was made for."""
    root: str = ""
    """What the path of a module has before the name that the checkpoint gives it."""
    ties: Mapping[str, str]
    """Modules that share their weight with another: path of a Linear -> path of the module that owns it."""

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
        """Hidden states [T, H] of token_ids [T] at positions [T], after the last norm; writes the caches."""

    @abstractmethod
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[L, H] -> [L, V], in the model's dtype."""

    def translate(self, stream: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Names and layouts of the checkpoint -> those of the modules; by default they are the same.

        Values are tensors, or a `Weight` where the checkpoint's format is kept: only for models that do not override
        this.
        """
        return stream

    def is_superfluous(self, name: str) -> bool:
        """Whether a checkpoint tensor that has no place may be passed over."""
        return False
