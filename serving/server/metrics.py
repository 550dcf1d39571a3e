"""Define the Prometheus metrics, which have the names of TensorFlow Serving's metrics."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence

import prometheus_client

PREFIX = ":tensorflow:serving:"
# Upper bounds of the histogram buckets. Latencies are in microseconds.
_LATENCY_BUCKETS = [10 * 1.8**power for power in range(33)]
_QUEUING_BUCKETS = [100 * 1.2**power for power in range(52)]
_COUNT_BUCKETS = [2.0**power for power in range(15)]


class Metrics:
    """The counters, gauges and histograms of one server."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        #: `labeled(metric, *values)` is `metric.labels(*values)`, but faster.
        self.labeled = functools.lru_cache(1024)(lambda metric, *values: metric.labels(*values))
        self._warmups: dict[str, set[str]] = {}
        self._named_total = {PREFIX + "request_example_count"}

        def counter(name, *labels):
            return prometheus_client.Counter(PREFIX + name, name, labels, registry=self._registry)

        def histogram(name, *labels, buckets=_LATENCY_BUCKETS):
            return prometheus_client.Histogram(
                PREFIX + name, name, labels, buckets=buckets, registry=self._registry
            )

        self.request_count = counter("request_count", "model_name", "status")
        self.request_latency = histogram("request_latency", "model_name", "API", "entrypoint")
        self.runtime_latency = histogram("runtime_latency", "model_name", "API", "runtime")
        self.example_counts = histogram("request_example_counts", "model", buckets=_COUNT_BUCKETS)
        self.example_count_total = counter("request_example_count_total", "model")
        self.warmup_latency = histogram("model_warmup_latency", "model_path", "status")
        self.warmup_records = counter("model_warmup_records_read", "model_path")
        batching = "batching_session:"
        self.queuing_latency = histogram(
            batching + "queuing_latency", "thread_pool_name", buckets=_QUEUING_BUCKETS
        )
        self.wrapped_run_count = counter(batching + "wrapped_run_count")
        sizes = {"buckets": _COUNT_BUCKETS}
        self.input_batch_size = histogram(batching + "input_batch_size", **sizes)
        self.processed_batch_size = histogram(batching + "processed_batch_size", **sizes)
        self.padding_size = histogram(batching + "padding_size", **sizes)
        self.sequences, self.sequence_bytes, self.queue_depth = (
            prometheus_client.Gauge(PREFIX + name, name, registry=self._registry)
            for name in ("sequences", "sequence_bytes", batching + "queue_depth")
        )

    def warmed_up(self, path: str, status: str, seconds: float, records: int) -> None:
        """Record a warm-up.

        Args:
            path: The version directory, which is a label of the metrics.
            status: The canonical code of the result.
            seconds: The duration.
            records: The number of warm-up requests.
        """
        self._warmups.setdefault(path, set()).add(status)
        self.warmup_latency.labels(path, status).observe(seconds * 1e6)
        self.warmup_records.labels(path).inc(records)

    def forget(self, path: str) -> None:
        """Remove the warm-up metrics that have a version directory as their label."""
        statuses = self._warmups.pop(path, ())
        for status in statuses:
            self.warmup_latency.remove(path, status)
        if statuses:
            self.warmup_records.remove(path)

    def collect(self) -> dict[str, dict]:
        """Return metric name -> {"type": ..., "samples": {sample name: value}}, ready for JSON.

        The names are those of tensorflow_model_server, so that its dashboards work. The exposition
        format of prometheus_client would instead append `_total` to the name of each counter, and
        add a sample with the time of its creation.
        """
        families = {}
        for family in self._registry.collect():
            counts = family.type == "counter"
            own = family.name + "_total" if family.name in self._named_total else family.name
            samples = {}
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                labels = ",".join(
                    f'{key}="{_escaped(text)}"' for key, text in sample.labels.items()
                )
                samples[f"{own if counts else sample.name}{{{labels}}}"] = sample.value
            families[own] = {"type": family.type, "samples": samples}
        return families


def render(collected: Sequence[Mapping[str, Mapping]]) -> bytes:
    """Return the page that Prometheus scrapes, with each sample summed over all processes."""
    lines = []
    for name, family in collected[0].items():
        lines.append(f"# TYPE {name} {family['type']}")
        totals: collections.Counter[str] = collections.Counter()
        for each in collected:
            totals.update(each[name]["samples"])
        for sample, value in totals.items():
            lines.append(f"{sample} {prometheus_client.utils.floatToGoString(value)}")
    return ("\n".join(lines) + "\n").encode()


def _escaped(value):
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
