"""Which steps are captured, and in what shapes."""

from __future__ import annotations

from anychip.plugin.contract import KVPlan, KVSpec
from anychip.runner.captured import Sizes, sizes_up_to
from anychip.triton.attention.plan import ROW_CLASSES
from anychip.triton.provider import MAX_HEAD_DIM, MIN_HEAD_DIM

MAX_CAPTURED_TOKENS = 8192
"""A larger step that computes prompts is long enough for the host to launch it kernel by kernel."""
ROWS = (8, 40)
"""Prompts in captured steps, beside the most there can be."""
MOST_ROWS = 257
"""Those of them at most."""
BESIDE = (0, 16, 64, 128, 256, 512, 1024)
"""Decoding rows beside prompts: contexts are read in another way, and padding costs a token and its logits."""
_APART = 64


def reads_paged(spec: KVSpec) -> bool:
    """Whether attention over such a cache plans on the device, so that a captured step stays right."""
    return all(MIN_HEAD_DIM <= plane.shape[-1] <= MAX_HEAD_DIM for plane in spec.planes if plane.name in ("k", "v"))


def captured_sizes(plan: KVPlan) -> Sizes:
    """Shapes of graphs: decoding steps, and others while the host may take longer to launch than the GPU to run."""
    most, beside = min(plan.max_num_seqs + 1, MOST_ROWS), sorted({min(rows, plan.max_num_seqs) for rows in BESIDE})
    return Sizes(
        single=sizes_up_to(plan.max_num_seqs),
        tokens=sizes_up_to(min(_padded(plan.max_num_batched_tokens), MAX_CAPTURED_TOKENS), _APART),
        rows=tuple(sorted({*(rows for rows in ROWS if rows < most), most + (most % _APART == 0)})),
        beside=tuple(rows for rows in beside if rows + most <= ROW_CLASSES[-1]),
    )


def most_padded(tokens: int, rows: int) -> int:
    """Tokens of the largest captured step, where one has up to `tokens` of them in up to `rows` rows."""
    return _padded(tokens) + rows


def _padded(tokens: int) -> int:
    return -(-tokens // _APART) * _APART
