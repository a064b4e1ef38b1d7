"""The runner of a GPU: the default one, but kernels are compiled while weights are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anychip.config import EngineConfig
from anychip.engine.batch import Batch
from anychip.plugin.contract import KVPlan, Memory, ModelInfo, ModelSource, Progress, Step
from anychip.runner.step import Launched
from anychip.runner.torch_runner import TorchRunner
from anychip.triton.ahead.process import Helpers
from anychip.triton.keys import start_hashing
from anychip.triton.sizes import most_padded

if TYPE_CHECKING:
    from anychip.triton.platform import TritonPlatform

StartHelpers = Callable[[EngineConfig, ModelSource], Helpers | None]


class TritonRunner(TorchRunner):
    """Runs one model on a `TritonPlatform`. `helpers` starts what compiles ahead, or returns None."""

    def __init__(self, platform: TritonPlatform, config: EngineConfig, helpers: StartHelpers) -> None:
        super().__init__(platform, config)
        self._gpu = platform
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
        if self._pooled_model is not None or not self._gpu.captures(self.model.kv_specs):
            return super().measure()
        offers = self._gpu.capabilities
        tokens = self.config.max_num_batched_tokens or offers.batched_tokens
        rows = self.config.max_num_seqs or offers.max_num_seqs
        return self._gpu.measured(super().measure, most_padded(tokens, rows) / tokens)

    def submit(self, batch: Batch) -> Step:
        """See `Runner.submit`. Another engine may have made its own GPU the current one, or another thread may call."""
        self._gpu.make_current()
        return super().submit(batch)

    def prepare(self) -> bool:
        """See `Runner.prepare`, and `submit`."""
        self._gpu.make_current()
        return super().prepare()

    def _prepare(self, plan: KVPlan) -> None:
        super()._prepare(plan)
        self._gpu.begin_steps()

    def _launch(self, batch: Batch, greedy: bool) -> Launched:
        """After a step with masks the highest logits are not taken at once: most likely this step has masks too."""
        masked = self._last_step is not None and self._last_step.masked
        return super()._launch(batch, greedy and not masked)

    def close(self) -> None:
        """See `Runner.close`."""
        super().close()
        if self._helpers is not None:
            self._helpers.close()
            self._helpers = None
