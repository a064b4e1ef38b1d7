"""The step loop of a GPU: the default one, whose kernels are compiled while weights are loaded."""

from __future__ import annotations

from collections.abc import Callable

from anychip.config import EngineConfig
from anychip.plugin.contract import Memory, ModelInfo, ModelSource, Progress
from anychip.runner.platform import TorchPlatform
from anychip.runner.torch_runner import TorchRunner
from anychip.triton.ahead import Helpers
from anychip.triton.keys import start_hashing

StartHelpers = Callable[[EngineConfig, ModelSource], Helpers | None]


class TritonRunner(TorchRunner):
    """Runs on a `TorchPlatform` whose kernels are Triton's."""

    def __init__(self, platform: TorchPlatform, config: EngineConfig, helpers: StartHelpers) -> None:
        super().__init__(platform, config)
        self._start_helpers = helpers
        self._helpers: Helpers | None = None

    def load(self, source: ModelSource, progress: Progress) -> ModelInfo:
        """See `Runner.load`."""
        self._helpers = self._start_helpers(self.config, source)
        hashing = start_hashing()
        info = super().load(source, progress)
        hashing.join()
        return info

    def measure(self) -> Memory:
        """See `Runner.measure`."""
        if self._helpers is not None:
            self._helpers.wait()
        return super().measure()

    def close(self) -> None:
        """See `Runner.close`."""
        super().close()
        if self._helpers is not None:
            self._helpers.close()
            self._helpers = None
