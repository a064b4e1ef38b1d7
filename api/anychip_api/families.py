"""The metrics of a server as Prometheus reads them, under the names that the field knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from anychip import AsyncEngine
    from anychip_api.metrics import Metrics


class Families(Collector):
    """Reads the counts at each scrape."""

    def __init__(self, metrics: Metrics, engine: AsyncEngine, model_name: str, prefix: str) -> None:
        self._metrics = metrics
        self._engine = engine
        self._model = model_name
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        """All metrics as they stand."""
        yield from self._gauges()
        yield self._cache_config()
        yield from self._counters()
        yield from self._histograms()

    def _gauges(self) -> Iterator[Metric]:
        stats = self._engine.stats
        usage = stats.blocks_used / stats.blocks if stats.blocks else 0.0
        for name, text, value in (
            ("num_requests_running", "Sequences in the running batch.", stats.running),
            ("num_requests_waiting", "Sequences that wait to run.", stats.waiting),
            ("kv_cache_usage_perc", "Part of the KV cache's blocks in use; 1 is all.", usage),
            ("compiled_programs", "Programs compiled for shapes of steps.", self._engine.info.compilations),
            ("prepared_steps", "Shapes of steps made ready while idle.", self._engine.prepared.count),
        ):
            family = GaugeMetricFamily(self._prefix + name, text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family

    def _cache_config(self) -> Metric:
        info = self._engine.info
        labels = {
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "enable_prefix_caching": str(info.prefix_caching),
            "cache_dtype": info.dtype,
        }
        family = GaugeMetricFamily(f"{self._prefix}cache_config_info", "The KV cache.", labels=["model_name", *labels])
        family.add_metric([self._model, *labels.values()], 1)
        return family

    def _counters(self) -> Iterator[Metric]:
        stats, metrics = self._engine.stats, self._metrics
        for name, text, value in (
            ("num_preemptions", "Sequences that made room for others.", stats.preemptions_total),
            ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.prefix_queries_total),
            ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.prefix_hits_total),
            ("prompt_tokens", "Prompt tokens processed.", metrics.prompt_tokens),
            ("prompt_tokens_cached", "Prompt tokens of requests that were cached.", metrics.prompt_tokens_cached),
            ("generation_tokens", "Tokens generated.", metrics.generation_tokens),
        ):
            family = CounterMetricFamily(self._prefix + name, text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family
        reasons = CounterMetricFamily(
            f"{self._prefix}request_success", "Requests that ended.", labels=["model_name", "finished_reason"]
        )
        for reason, count in metrics.finished.items():
            reasons.add_metric([self._model, reason], count)
        yield reasons
        answers = CounterMetricFamily("http_requests", "Answers sent.", labels=["method", "handler", "status"])
        for (method, path, status), count in metrics.responses.items():
            answers.add_metric([method, path, str(status)], count)
        yield answers

    def _histograms(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, histogram in (
            ("time_to_first_token_seconds", "From arrival to the first token.", metrics.first_token),
            ("inter_token_latency_seconds", "Between two tokens of a choice.", metrics.inter_token),
            ("time_per_output_token_seconds", "Between two tokens of a choice.", metrics.inter_token),
            ("request_time_per_output_token_seconds", "A request's mean time a token.", metrics.per_output_token),
            ("e2e_request_latency_seconds", "From arrival to the last token.", metrics.end_to_end),
            ("request_queue_time_seconds", "From arrival to the first step.", metrics.queue),
            ("request_prefill_time_seconds", "From the first step to the first token.", metrics.prefill),
            ("request_decode_time_seconds", "From the first token to the last.", metrics.decode),
            ("request_inference_time_seconds", "From the first step to the last token.", metrics.inference),
            ("request_prompt_tokens", "Prompt tokens of a request.", metrics.request_prompt),
            ("request_generation_tokens", "Tokens generated for a request.", metrics.request_generation),
            ("request_max_num_generation_tokens", "Tokens of a request's longest choice.", metrics.longest_generation),
            ("request_params_max_tokens", "max_tokens of a request.", metrics.params_max_tokens),
            ("request_params_n", "n of a request.", metrics.params_n),
            ("iteration_tokens_total", "Tokens of a step.", metrics.step_tokens),
        ):
            family = HistogramMetricFamily(self._prefix + name, text, labels=["model_name"])
            family.add_metric([self._model], histogram.buckets(), histogram.total)
            yield family
