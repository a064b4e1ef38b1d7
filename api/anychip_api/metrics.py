"""Prometheus metrics under the names that the field knows. Times are seconds as a client of the engine sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from anychip.engine.messages import StepOutputs
from anychip_api.histogram import Histogram, one_two_five

if TYPE_CHECKING:
    from anychip import AsyncEngine

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 20, 80)
_REQUEST = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """Everything /metrics shows of one server."""

    def __init__(self, engine: AsyncEngine, model_name: str, prefix: str) -> None:
        self._engine = engine
        self._model = model_name
        self._prefix = prefix
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self.first_token = Histogram(_TTFT)
        self.inter_token = Histogram(_TOKEN)
        self.per_output_token = Histogram(_TOKEN)
        self.end_to_end = Histogram(_REQUEST)
        self.queue = Histogram(_REQUEST)
        self.request_prompt = Histogram(one_two_five(engine.info.max_model_len))
        self.request_generation = Histogram(one_two_five(engine.info.max_model_len))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self))
        engine.add_listener(self._on_step)

    def page(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self._registry)

    def families(self) -> Iterator[Metric]:
        """All metrics as they stand."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()

    def _on_step(self, outputs: StepOutputs) -> None:
        for scheduled in outputs.scheduled:
            self.queue.observe(scheduled.waited)

    def _gauges(self) -> Iterator[Metric]:
        stats, info = self._engine.stats, self._engine.info
        usage = stats.blocks_used / stats.blocks if stats.blocks else 0.0
        yield self._gauge("num_requests_running", "Sequences in the running batch.", stats.running)
        yield self._gauge("num_requests_waiting", "Sequences that wait to run.", stats.waiting)
        yield self._gauge("kv_cache_usage_perc", "Part of the KV cache's blocks in use; 1 is all.", usage)
        labels = {
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "enable_prefix_caching": str(info.prefix_caching),
            "cache_dtype": info.dtype,
        }
        family = GaugeMetricFamily(f"{self._prefix}cache_config_info", "The KV cache.", labels=["model_name", *labels])
        family.add_metric([self._model, *labels.values()], 1)
        yield family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(self._prefix + name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _counters(self) -> Iterator[Metric]:
        stats = self._engine.stats
        for name, text, value in (
            ("num_preemptions", "Sequences that made room for others.", stats.preemptions_total),
            ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.prefix_queries_total),
            ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.prefix_hits_total),
            ("prompt_tokens", "Prompt tokens processed.", self.prompt_tokens),
            ("generation_tokens", "Tokens generated.", self.generation_tokens),
        ):
            family = CounterMetricFamily(self._prefix + name, text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family
        reasons = CounterMetricFamily(
            f"{self._prefix}request_success", "Requests that ended.", labels=["model_name", "finished_reason"]
        )
        for reason, count in self.finished.items():
            reasons.add_metric([self._model, reason], count)
        yield reasons

    def _histograms(self) -> Iterator[Metric]:
        for name, text, histogram in (
            ("time_to_first_token_seconds", "From arrival to the first token.", self.first_token),
            ("inter_token_latency_seconds", "Between two tokens of a choice.", self.inter_token),
            ("time_per_output_token_seconds", "Between two tokens of a choice.", self.inter_token),
            ("request_time_per_output_token_seconds", "A request's mean time a token.", self.per_output_token),
            ("e2e_request_latency_seconds", "From arrival to the last token.", self.end_to_end),
            ("request_queue_time_seconds", "From arrival to the first step.", self.queue),
            ("request_prompt_tokens", "Prompt tokens of a request.", self.request_prompt),
            ("request_generation_tokens", "Tokens generated for a request.", self.request_generation),
        ):
            family = HistogramMetricFamily(self._prefix + name, text, labels=["model_name"])
            family.add_metric([self._model], histogram.buckets(), histogram.total)
            yield family


class _Families(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()
