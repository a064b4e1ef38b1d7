"""Ops: reference, input generator, tolerance, implementations; `bind` chooses once at load.

What a platform needs that brings kernels is named here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip.ops.attention import AttentionInputs as AttentionInputs
    from anychip.ops.op import Kernel as Kernel
    from anychip.ops.op import OpSpec as OpSpec
    from anychip.ops.parts import Ops as Ops
    from anychip.ops.ragged import Ragged as Ragged

__all__ = ["AttentionInputs", "Kernel", "OpSpec", "Ops", "Ragged"]


def __getattr__(name: str) -> Any:
    """Import torch only when a name that needs it is asked for."""
    if name == "AttentionInputs":
        from anychip.ops.attention import AttentionInputs

        return AttentionInputs
    if name == "Ops":
        from anychip.ops.parts import Ops

        return Ops
    if name == "Ragged":
        from anychip.ops.ragged import Ragged

        return Ragged
    if name in ("Kernel", "OpSpec"):
        from anychip.ops import op

        return op.Kernel if name == "Kernel" else op.OpSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
