"""Platforms with one thing wrong, as source: the reference under another name, and what differs."""

HEAD = """
from dataclasses import replace

import torch

from anychip.models.feed_forward import GatedMLP
from anychip.ops import activation, attention, linear, norm, rope
from anychip.ops.op import Kernel
from anychip.plugin import API_VERSION, Capabilities, Memory, PlatformSpec, Probe, hookimpl
from anychip.reference.platform import ReferencePlatform
from anychip.runner import TorchRunner
from anychip.sample import choose, logprobs, masks, penalties


class Broken(ReferencePlatform):
"""
TAIL = """

@hookimpl
def register_platforms(register):
    open = lambda devices, config: Broken()
    register(PlatformSpec(name="broken", probe=lambda: Probe(-1), open=open, api_version=API_VERSION))
"""
KERNELS = """
    def kernels(self, spec):
        return {{{listed}}}

{functions}
"""
DEAF = """
    def runner(self, config):
        return Deaf(self, config)


class Deaf(TorchRunner):
    def submit(self, batch):
        rows = tuple(replace(row, sampling=without(row.sampling)) for row in batch.admitted)
        return super().submit(replace(batch, admitted=rows))


def without(sampling):
    return replace(sampling, {change})
"""
FAMILY = (
    '"new_cache": Kernel(attention.new_cache), "copy_blocks": Kernel(attention.copy_blocks), '
    '"plan_attention": Kernel(attention.plan_attention), "kv_write": Kernel(attention.kv_write), '
    '"paged_attention": Kernel(attention.paged_attention)'
)

OPS_GONE_WRONG = {
    "rms_norm": (
        """
        def kernel(x, weight, eps):
            return norm.rms_norm(x, weight, eps + 1e-2)
        """,
        "rms_norm float32",
        "normalized error",
    ),
    "add_rms_norm": (
        """
        def kernel(x, residual, weight, eps):
            residual += x
            return norm.rms_norm(residual, weight, eps), residual
        """,
        "add_rms_norm",
        "changed an argument",
    ),
    "silu_mul": (
        """
        def kernel(x):
            return activation.silu_mul(x.nan_to_num())
        """,
        "silu_mul",
        "does not show it",
    ),
    "linear": (
        """
        def kernel(x, weight, bias):
            return linear.linear(x, weight, None)
        """,
        "bias",
        "normalized error",
    ),
    "rope": (
        """
        def kernel(q, k, positions, cos_sin):
            as_if_contiguous = q.as_strided(q.shape, torch.empty(q.shape).stride(), q.storage_offset())
            return rope.rope(as_if_contiguous, k, positions, cos_sin)
        """,
        "strided",
        "normalized error",
    ),
    "embedding": (
        """
        def kernel(token_ids, table):
            return linear.embedding(token_ids, table).double()
        """,
        "embedding",
        "came as torch.float64",
    ),
    "gelu_mul": (
        """
        def kernel(x, approximate):
            raise RuntimeError("illegal address")
        """,
        "gelu_mul",
        "raised RuntimeError: illegal address",
    ),
    "greedy": (
        """
        def kernel(logits):
            values, ids = logits.float().flip(-1).max(-1)
            return logits.shape[-1] - 1 - ids, values
        """,
        "ties",
        "are not the right ones",
    ),
    "sample": (
        """
        def kernel(logits, temperature, top_k, top_p, min_p, numbers, candidates):
            return choose.sample(logits, temperature, top_k * 0, top_p, min_p, numbers, candidates)
        """,
        "top_k",
        "are not the right ones",
    ),
    "apply_penalties": (
        """
        def kernel(logits, index, slots, counts, seen, presence, frequency, repetition, keep):
            history = index, slots.flip(0), counts, seen
            return penalties.apply_penalties(logits, *history, presence, frequency, repetition, keep)
        """,
        "3 of 5 rows",
        "normalized error",
    ),
    "count_tokens": (
        """
        def kernel(token_ids, index, slots, counts, seen):
            penalties.count_tokens(token_ids, index, slots, counts, seen.clone())
        """,
        "3 of 3 rows",
        "output 1",
    ),
    "add_bias": (
        """
        def kernel(logits, index, tokens, values):
            logits[index, tokens] += values.clamp(min=-1e30)
        """,
        "one forbidden twice",
        "normalized error",
    ),
    "mask_tokens": (
        """
        def kernel(logits, index, bits):
            masks.mask_tokens(logits, index.sort().values, bits)
        """,
        "2 rows",
        "normalized error",
    ),
    "gather_logprobs": (
        """
        def kernel(logits, token_ids, count):
            ids, values, ranks = logprobs.gather_logprobs(logits.flip(1), logits.shape[1] - 1 - token_ids, count)
            return logits.shape[1] - 1 - ids, values, ranks
        """,
        "ties",
        "are not the right ones",
    ),
}
"""By op: a kernel with a mistake, and words of the message about it."""

ATTENTION_GONE_WRONG = {
    "ignores the block table": (
        "paged_attention",
        """
        def kernel(q, cache, plan, scale, softcap=0.0, sinks=None):
            table = plan.inputs.block_table
            table = torch.arange(table.numel(), dtype=torch.int32).view_as(table) % len(cache.k)
            plan = replace(plan, inputs=replace(plan.inputs, block_table=table))
            return attention.paged_attention(q, cache, plan, scale, softcap, sinks)
        """,
        ("paged_attention", "shuffled block ids", "cached prefix = recomputed", "ragged = alone"),
    ),
    "ignores the sliding window": (
        "paged_attention",
        """
        def kernel(q, cache, plan, scale, softcap=0.0, sinks=None):
            return attention.paged_attention(q, cache, replace(plan, window=None), scale, softcap, sinks)
        """,
        ("paged_attention", "logits against the reference"),
    ),
    "reads what is no number": (
        "paged_attention",
        """
        def kernel(q, cache, plan, scale, softcap=0.0, sinks=None):
            unseen = 0 * cache.v.sum().to(q.dtype)
            return attention.paged_attention(q, cache, plan, scale, softcap, sinks) + unseen
        """,
        ("new_cache",),
    ),
    "writes one entry too many": (
        "kv_write",
        """
        def kernel(k, v, cache, plan):
            attention.kv_write(k, v, cache, plan)
            cache.k.flatten(0, 1)[plan.slots.min() - 1] = 0
        """,
        ("kv_write", "chunked = whole"),
    ),
    "copies nothing": (
        "copy_blocks",
        """
        def kernel(cache, source, target):
            pass
        """,
        ("copy_blocks",),
    ),
}
"""By mistake: the op, a kernel that makes it, and the checks that must see it."""
