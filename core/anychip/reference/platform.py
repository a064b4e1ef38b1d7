"""The platform that is the definition: every op by its reference, on torch's default device."""

from __future__ import annotations

import torch

from anychip.plugin.contract import Capabilities, Memory
from anychip.runner.host_memory import host_memory
from anychip.runner.platform import TorchPlatform


class ReferencePlatform(TorchPlatform):
    """Three members; the host's memory, because torch's default device is the host unless told otherwise."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = torch.get_default_device() if device is None else device

    @property
    def capabilities(self) -> Capabilities:
        """Two types; memory is shared with everything else that runs here."""
        return Capabilities(
            dtypes=("float32", "bfloat16"),
            batched_tokens=512,
            memory_utilization=0.5,
            kv_cache_dtypes=("int8", "fp8"),
            token_masks=True,
        )

    @property
    def device(self) -> torch.device:
        """Torch's default device at the time of opening."""
        return self._device

    def memory(self) -> Memory:
        """See `host_memory`."""
        return host_memory()

    def synchronize(self) -> None:
        """Nothing runs behind our back."""
        return
