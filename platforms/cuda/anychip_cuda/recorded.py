"""Steps with long prompts that are captured once for whatever rows come: the device works out where those begin."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch

from anychip.ops.attention import AttentionInputs
from anychip.runner.inputs import Computed, DeviceBatch, Forward
from anychip_cuda.libraries import Library, Prompts


@dataclass(frozen=True, slots=True)
class RecordedInputs(AttentionInputs):
    """Inputs of a captured step: its arrays on the device change, and numbers on the host are upper bounds."""

    alone: bool = field(kw_only=True)
    """Whether the first row is one fresh prompt, and all else is padding."""
    keys: int = field(kw_only=True)
    """Upper bound of the keys of all rows that the library attends."""

    def cut(self, library: Library) -> tuple[Prompts, AttentionInputs]:
        """Split the rows behind the last one that is not worth the library: the prompts, and inputs for Triton.

        Shapes cannot change, so each of both keeps all R rows; those of the other have no tokens in it.
        """
        start = self.query_start
        tokens, row = start[1:] - start[:-1], torch.arange(len(start) - 1, dtype=torch.int32, device=start.device)
        lengths = torch.where(tokens > 0, self.seq_lens, 0)
        other = lengths > library.max_keys_per_token * tokens
        first = torch.where(other, row + 1, self.num_single).amax(0, keepdim=True)
        begin = start.index_select(0, first)
        key_start = torch.zeros_like(start)
        torch.cumsum(torch.where(row >= first, lengths, 0), 0, dtype=torch.int32, out=key_start[1:])
        bounds = (0, len(self.positions)), (0, self.keys)
        prompts = Prompts(0, *bounds, torch.maximum(start, begin), key_start, fresh=False, alike=False)
        return prompts, replace(self, query_start=torch.minimum(start, begin))


def recording(step: Forward, keys: int) -> Forward:
    """`step` for batches whose long prompts have up to `keys` keys for each of its tokens; 0: for one fresh prompt.

    What it returns is captured.
    """

    def run(inputs: DeviceBatch) -> Computed:
        return step(replace(inputs, groups=tuple(_recorded(each, keys) for each in inputs.groups)))

    return run


def _recorded(inputs: AttentionInputs, keys: int) -> RecordedInputs:
    known = {each.name: getattr(inputs, each.name) for each in fields(AttentionInputs)}
    return RecordedInputs(**known, alone=not keys, keys=keys * (len(inputs.positions) - inputs.num_single))
