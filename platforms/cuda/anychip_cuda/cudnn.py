"""Attention of fresh prompts by cuDNN, which torch brings as `scaled_dot_product_attention`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from anychip.ops.op import OpSpec
from anychip.triton.attention.tiles import COPIED, LEAST_GROUPED
from anychip_cuda.libraries import Keys, Library, Prompts, refusals

GRAIN = 256
"""Lengths are rounded up to a multiple of it: cuDNN takes 40 ms to plan for each length that it has not seen."""
MIN_TOKENS = 1024
"""Tokens of a prompt from which reading its keys out of the cache costs less than is gained."""
MAX_HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class Cudnn(Library):
    """Prompts of one length that GRAIN divides go in one call, others each in one of its own, its length rounded up."""

    outdone: bool = False
    """Whether this chip has tiles for our attention by groups of warps, which was faster than cuDNN on an H200."""
    backend: str = "CUDNN_ATTENTION"
    """The member of torch's `SDPBackend` that computes; tests without a GPU choose another."""

    query_overread = GRAIN
    min_tokens = MIN_TOKENS

    @property
    def name(self) -> str:
        """See `Library`."""
        return f"cuDNN {torch.backends.cudnn.version()}"

    def refuses(self, spec: OpSpec) -> list[str]:
        """See `Library`."""
        rivalled = self.outdone and spec.head_dim >= LEAST_GROUPED and spec.block_size % COPIED == 0
        faster = ["Triton attends such heads faster on this GPU"] if rivalled else []
        return refusals(spec, ("bfloat16", "float16"), MAX_HEAD_DIM) + faster

    @property
    def likely(self) -> bool:
        """See `Library`."""
        return not self.outdone

    def attend(
        self, q: torch.Tensor, keys: Keys, prompts: Prompts, scale: float, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Library`."""
        if prompts.alike and len(q) % (GRAIN * prompts.count) == 0:
            attended = self._together(q, *keys.read(0, len(q), len(q)), prompts.count, scale)
            return attended if out is None else out.copy_(attended)
        if prompts.count == 1 and out is None:
            return self._alone(q, keys, 0, scale)
        out = torch.empty_like(q) if out is None else out
        for first, last in pairwise(prompts.query_start):
            out[first:last] = self._alone(q[first:last], keys, first, scale)
        return out

    def _alone(self, q: torch.Tensor, keys: Keys, first: int, scale: float) -> torch.Tensor:
        """One prompt of which `first` is the first token, its length rounded up.

        Attention is causal, so its own tokens see nothing of what lies behind them.
        """
        tokens, room = len(q), -(-len(q) // GRAIN) * GRAIN
        k, v = keys.read(first, first + tokens, room)
        return self._together(_longer(q, room), k, v, 1, scale)[:tokens]

    def _together(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, prompts: int, scale: float) -> torch.Tensor:
        """So many prompts of one length as a batch, without copies. q [T, N, D], k and v [T, M, D] -> [T, N, D]."""
        if q.is_meta:  # torch would take it apart, and import its compiler for that
            return torch.empty(q.shape, dtype=q.dtype, device=q.device)
        queries, keys, values = (x.unflatten(0, (prompts, -1)).transpose(1, 2) for x in (q, k, v))
        with sdpa_kernel(SDPBackend.__members__[self.backend]):
            attended = functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=scale, enable_gqa=True
            )
        return attended.transpose(1, 2).flatten(0, 1)


def cudnn_attends(device: torch.device) -> bool:
    """Whether torch can use cuDNN's attention on a GPU, asked with tensors such as a prompt's."""
    q, k = (torch.empty(1, heads, GRAIN, MAX_HEAD_DIM, dtype=torch.float16, device=device) for heads in (4, 1))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.backends.cuda.can_use_cudnn_attention(
            torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, True, True)
        )


def _longer(x: torch.Tensor, lines: int) -> torch.Tensor:
    """x [t, N, D] with `lines` rows: the further ones are what lies behind it in memory, whatever that is.

    Where the memory ends before, it is a copy.
    """
    end = (x.storage_offset() + lines * x.stride(0)) * x.itemsize
    if x.is_contiguous() and end <= x.untyped_storage().nbytes():
        return x.as_strided((lines, *x.shape[1:]), x.stride())
    longer = x.new_empty(lines, *x.shape[1:])
    longer[: len(x)] = x
    return longer
