"""The processor through Intel's extension for PyTorch: its paged attention, everything else by reference."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, Memory
from anychip.runner import TorchPlatform
from anychip.runner.host_memory import host_memory
from anychip_xpu.ipex import PACKAGE
from anychip_xpu.ipex_attention import ATTENTION, load


class IpexPlatform(TorchPlatform):
    """A host's memory and torch's operators, with one library's attention."""

    def __init__(self) -> None:
        load()

    @property
    def capabilities(self) -> Capabilities:
        """As the reference, and in half precision too."""
        return Capabilities(
            dtypes=("bfloat16", "float32", "float16"),
            block_sizes=(16, 32, 64),
            batched_tokens=512,
            memory_utilization=0.5,
            token_masks=True,
        )

    @property
    def device(self) -> torch.device:
        """The processor, which is all that these builds of the extension know."""
        return torch.device("cpu")

    def memory(self) -> Memory:
        """See `host_memory`."""
        return host_memory()

    def synchronize(self) -> None:
        """Nothing runs behind our back."""
        return

    def notes(self) -> tuple[str, ...]:
        """The library in use."""
        return (f"{PACKAGE} {version(PACKAGE)}, torch {torch.__version__}",)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """The attention family."""
        return ATTENTION
