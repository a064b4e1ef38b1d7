"""Platforms whose captured steps are simply called again, on the processor."""

from dataclasses import replace

import torch

from anychip.ops import attention
from anychip.ops.op import Kernel
from anychip.reference.platform import ReferencePlatform
from anychip.runner.captured import CapturedSteps, Sizes


class Captured(ReferencePlatform):
    """What is recorded is simply called again."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def compile(self, step, plan):
        otherwise = super().compile(step, plan)
        self.steps = CapturedSteps(step, plan, self.device, self.send, lambda run: run, otherwise, self.sizes)
        return self.steps


class OnDevice(Captured):
    """Its attention reads nothing on the host but sizes, as a captured one must."""

    def kernels(self, spec):
        family = ("new_cache", "copy_blocks", "plan_attention", "kv_write")
        return {name: Kernel(getattr(attention, name)) for name in family} | {"paged_attention": Kernel(attend)}


def attend(q, cache, plan, scale, softcap=0.0, sinks=None):
    inputs = plan.inputs
    rows = torch.bucketize(torch.arange(len(q), dtype=torch.int32), inputs.query_start[1:], right=True)
    table = inputs.block_table.long()[rows.clamp(max=len(inputs.block_table) - 1)]
    k, v = (
        plane[table].flatten(1, 2).repeat_interleave(q.shape[1] // plane.shape[2], 2) for plane in (cache.k, cache.v)
    )
    visible = torch.arange(k.shape[1]) <= inputs.positions.unsqueeze(1)
    scores = torch.einsum("tnd,tsnd->tns", q, k).mul(scale).masked_fill(~visible.unsqueeze(1), float("-inf"))
    return torch.einsum("tns,tsnd->tnd", scores.softmax(-1), v.masked_fill(~visible[..., None, None], 0.0))


MIXED = Sizes(single=(1, 4), tokens=(8, 16, 33, 64), rows=(3, 7))
APART = replace(MIXED, beside=(0, 1, 3))
