"""Writes samples in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparkwap.core.errors import ConfigError
from sparkwap.metrics.decide import Sample
from sparkwap.metrics.definitions import METRICS


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for sample in self._samples:
                if sample.metric == metric.name:
                    family.add_metric(sample.labels, sample.value)
            yield family


def registry(samples: Iterable[Sample]) -> CollectorRegistry:
    """Return a registry that has only these samples."""
    found = CollectorRegistry()
    found.register(_Samples(samples))
    return found


def text(samples: Iterable[Sample]) -> str:
    """Return the text of a Prometheus file."""
    return generate_latest(registry(samples)).decode()


def write(samples: Iterable[Sample], path: Path) -> None:
    """Write a Prometheus file; a reader sees the old or the new one, as a rename replaces it.

    Raises:
        ConfigError: The file cannot be written; the old one stays.
    """
    try:
        write_to_textfile(str(path), registry(samples))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. No metrics were written; an "
            "earlier file is as it was. Choose another file with --file"
        ) from error
