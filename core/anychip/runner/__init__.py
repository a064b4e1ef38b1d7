"""The step loop of a torch device.

A third party needs one name from here: `from anychip.runner import TorchPlatform`. Who captures steps in graphs finds
what `compile` takes and returns, too; `host_memory` is for any platform that lives in the host's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anychip.runner.host_memory import host_memory

if TYPE_CHECKING:
    from anychip.runner.captured import CapturedSteps as CapturedSteps
    from anychip.runner.captured import Sizes as Sizes
    from anychip.runner.inputs import Forward as Forward
    from anychip.runner.inputs import RunBatch as RunBatch
    from anychip.runner.platform import TorchPlatform as TorchPlatform
    from anychip.runner.torch_runner import TorchRunner as TorchRunner

__all__ = ["CapturedSteps", "Forward", "RunBatch", "Sizes", "TorchPlatform", "TorchRunner", "host_memory"]


def __getattr__(name: str) -> Any:
    """Import torch only when a name that needs it is asked for."""
    if name == "TorchPlatform":
        from anychip.runner.platform import TorchPlatform

        return TorchPlatform
    if name == "TorchRunner":
        from anychip.runner.torch_runner import TorchRunner

        return TorchRunner
    if name in ("CapturedSteps", "Sizes"):
        from anychip.runner import captured

        return captured.CapturedSteps if name == "CapturedSteps" else captured.Sizes
    if name in ("Forward", "RunBatch"):
        from anychip.runner import inputs

        return inputs.Forward if name == "Forward" else inputs.RunBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
