"""Which steps are captured in graphs, and in what shapes."""

from __future__ import annotations

from anychip.plugin.contract import KVPlan, KVSpec
from anychip.runner.captured import Sizes, sizes_up_to
from anychip.triton.attention.plan import ROW_CLASSES
from anychip.triton.provider import MAX_HEAD_DIM, MIN_HEAD_DIM

MAX_CAPTURED_TOKENS = 8192
"""Most tokens of a captured step with prompts: the GPU takes longer for a larger one than the host to launch it."""
ROWS = (8, 40)
"""Rows with several tokens that captured steps are padded to, beside as many as there can be."""
MOST_ROWS = 257
"""Most such rows, padding included."""
BESIDE = (0, 16, 64, 128, 256, 512, 1024)
"""Decoding rows beside them: they are told apart, as contexts are read in another way, and each costs its logits."""
_APART = 64
"""Numbers of tokens are multiples of it."""


def reads_paged(spec: KVSpec) -> bool:
    """Whether our attention reads such a cache: its plan is made on the device, so that steps can be captured."""
    return all(MIN_HEAD_DIM <= plane.shape[-1] <= MAX_HEAD_DIM for plane in spec.planes if plane.name in ("k", "v"))


def captured_sizes(plan: KVPlan) -> Sizes:
    """Shapes to capture: all decoding steps, and others that the GPU may run faster than the host can launch them."""
    most, beside = min(plan.max_num_seqs + 1, MOST_ROWS), sorted({min(rows, plan.max_num_seqs) for rows in BESIDE})
    return Sizes(
        single=sizes_up_to(plan.max_num_seqs),
        tokens=sizes_up_to(min(_padded(plan.max_num_batched_tokens), MAX_CAPTURED_TOKENS), _APART),
        rows=tuple(sorted({*(rows for rows in ROWS if rows < most), most + (most % _APART == 0)})),
        beside=tuple(rows for rows in beside if rows + most <= ROW_CLASSES[-1]),
    )


def most_padded(tokens: int, rows: int) -> int:
    """Tokens, padding included, of a captured step of `tokens` tokens in `rows` rows."""
    return _padded(tokens) + rows


def _padded(tokens: int) -> int:
    return -(-tokens // _APART) * _APART
