"""What a server counts and measures. Times are seconds as a client of the engine sees them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from anychip.engine.messages import StepOutputs
from anychip_api.families import Families
from anychip_api.histogram import Histogram, one_two_five

if TYPE_CHECKING:
    from anychip import AsyncEngine

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 20, 80)
_REQUEST = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_CHOICES = (1, 2, 5, 10, 20)
_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """Everything /metrics shows of one server."""

    def __init__(self, engine: AsyncEngine, model_name: str, prefix: str) -> None:
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self.responses: Counter[tuple[str, str, int]] = Counter()
        """By method, declared path and status."""
        lengths = one_two_five(engine.info.max_model_len)
        self.first_token = Histogram(_TTFT)
        self.inter_token = Histogram(_TOKEN)
        self.per_output_token = Histogram(_TOKEN)
        self.end_to_end = Histogram(_REQUEST)
        self.queue = Histogram(_REQUEST)
        self.prefill = Histogram(_REQUEST)
        self.decode = Histogram(_REQUEST)
        self.inference = Histogram(_REQUEST)
        self.request_prompt = Histogram(lengths)
        self.request_generation = Histogram(lengths)
        self.longest_generation = Histogram(lengths)
        self.params_max_tokens = Histogram(lengths)
        self.params_n = Histogram(_CHOICES)
        self.step_tokens = Histogram(_STEP)
        self._registry = CollectorRegistry(auto_describe=False)
        self.families = Families(self, engine, model_name, prefix)
        self._registry.register(self.families)
        ProcessCollector(registry=self._registry)
        engine.add_listener(self._on_step)

    def page(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self._registry)

    def on_response(self, method: str, path: str, status: int) -> None:
        """A request was answered."""
        self.responses[method, path, status] += 1

    def _on_step(self, outputs: StepOutputs) -> None:
        for scheduled in outputs.scheduled:
            self.queue.observe(scheduled.waited)
        if outputs.stats.scheduled_tokens:
            self.step_tokens.observe(outputs.stats.scheduled_tokens)
