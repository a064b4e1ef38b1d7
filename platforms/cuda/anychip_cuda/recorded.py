"""Steps with long prompts that are recorded for whatever rows come: where these begin is worked out on the device."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch

from anychip.ops.attention import AttentionInputs
from anychip.runner.inputs import Computed, DeviceBatch, Forward
from anychip_cuda.libraries import Library, Prompts


@dataclass(frozen=True, slots=True)
class RecordedInputs(AttentionInputs):
    """Inputs whose numbers on the host are bounds."""

    alone: bool = field(kw_only=True)
    """Whether the first row is one fresh prompt, and all else padding."""
    keys: int = field(kw_only=True)
    """What is in the caches of the library's rows, at most."""

    def cut(self, library: Library) -> tuple[Prompts, AttentionInputs]:
        """The last rows, from which on all are worth the library, and the inputs of those before them.

        Each keeps all rows, those that are the other's without tokens.
        """
        start = self.query_start
        tokens, numbers = start[1:] - start[:-1], torch.arange(len(start) - 1, dtype=torch.int32, device=start.device)
        lengths = torch.where(tokens > 0, self.seq_lens, 0)
        first = torch.where(lengths > library.most_keys * tokens, numbers + 1, self.num_single).amax(0, keepdim=True)
        begin = start.index_select(0, first)
        key_start = torch.zeros_like(start)
        torch.cumsum(torch.where(numbers >= first, lengths, 0), 0, dtype=torch.int32, out=key_start[1:])
        bounds = (0, len(self.positions)), (0, self.keys)
        prompts = Prompts(0, 0, *bounds, torch.maximum(start, begin), key_start, False, False)
        return prompts, replace(self, query_start=torch.minimum(start, begin))


def recording(step: Forward, keys: int) -> Forward:
    """A step for rows of which a library's have up to `keys` times as many keys as it has tokens; 0: for one prompt."""

    def run(inputs: DeviceBatch) -> Computed:
        return step(replace(inputs, groups=tuple(_recorded(each, keys) for each in inputs.groups)))

    return run


def _recorded(inputs: AttentionInputs, keys: int) -> RecordedInputs:
    known = {each.name: getattr(inputs, each.name) for each in fields(AttentionInputs)}
    return RecordedInputs(**known, alone=not keys, keys=keys * (len(inputs.positions) - inputs.num_single))
