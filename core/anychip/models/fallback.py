"""Any causal language model whose attention goes through transformers' attention interface.

transformers' own module runs over the step's tokens as one row; its attention calls ours, which knows the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from anychip.models.fallback_attention import STEP, PagedStep
from anychip.models.fallback_module import ParametersOnMeta, build, head_of, keep_wide, read_config, tied_layers
from anychip.models.fallback_shape import probe
from anychip.models.fallback_weights import Translation
from anychip.models.loading import checkpoint_slots
from anychip.models.model import Model
from anychip.models.step import StepContext
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops


class FallbackModel(Model):
    """transformers' module behind anychip's model interface."""

    root = "module."

    def __init__(
        self, config: Mapping[str, Any], ops: Ops, dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        super().__init__(config, ops, dtype)
        self.ops = ops
        shape = probe(config, dtype)
        self.kv_specs = shape.kv_specs(str(dtype).removeprefix("torch."))
        self.vocab_size, self.max_model_len = shape.vocab_size, shape.max_model_len
        self.hidden_size = shape.hidden_size
        self.module = build(read_config(config), dtype, ParametersOnMeta(), ops, experts=None)
        keep_wide(self.module)
        self.ties = {self.root + path: self.root + owner for path, owner in tied_layers(self.module)}

    @classmethod
    def op_spec(cls, config: Mapping[str, Any], dtype: str, block_size: int) -> OpSpec:
        """See `Model.op_spec`."""
        return probe(config, torch.float32).op_spec(dtype, block_size)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, step: StepContext) -> torch.Tensor:
        """See `Model.forward`."""
        options = {STEP: PagedStep(self.ops, step)}
        row = positions.unsqueeze(0).long()
        output = self.module.base_model(input_ids=token_ids.unsqueeze(0), position_ids=row, use_cache=False, **options)
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def drop_output(self) -> None:
        """See `Model.drop_output`."""
        output = self.module.get_output_embeddings()
        path = next(path for path, layer in self.module.named_modules() if layer is output)
        parent, _, name = path.rpartition(".")
        setattr(self.module.get_submodule(parent), name, nn.Identity())
        self.ties = {}

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The model's own head, with what it does to logits. See `Model.logits`."""
        scores: torch.Tensor = head_of(self.module)(inputs_embeds=hidden.unsqueeze(0), use_cache=False).logits[0]
        return scores

    def translate(self, stream: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Model.translate`."""
        shapes = {name: slot.shape for name, slot in checkpoint_slots(self).items()}
        return Translation(self.module, shapes).translate(stream)

    def is_superfluous(self, name: str) -> bool:
        """Whether transformers passes over a tensor of this name."""
        patterns = self.module._keys_to_ignore_on_load_unexpected or ()
        return any(re.search(pattern, name) for pattern in patterns)
