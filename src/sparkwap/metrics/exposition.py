"""The names, labels and help texts of all metrics, and their text for Prometheus.

docs/metrics.md has the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparkwap.core.errors import ConfigError
from sparkwap.metrics.decide import Sample

PROJECT = ("project", "target")
RUN = (*PROJECT, "branch_kind")
TABLE = (*PROJECT, "schema", "table")
VERDICT = (*RUN, "schema", "table", "verdict")
MODEL = (*PROJECT, "model")


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric; the name of a counter ends with ``_total``."""

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def is_counter(self) -> bool:
        """Whether its value never decreases."""
        return self.name.endswith("_total")


METRICS = (
    Definition("sparkwap_metrics_timestamp_seconds", PROJECT,
        "Time when these metrics were gathered."),
    Definition("sparkwap_metrics_duration_seconds", PROJECT,
        "Seconds that it took to gather these metrics."),
    Definition("sparkwap_part_up", (*PROJECT, "part"),
        "1 if this part could be read, 0 if not: then its metrics are missing."),
    Definition("sparkwap_lake_exists", PROJECT,
        "1 if the catalog of the lake exists, 0 if no build has created it yet."),
    Definition("sparkwap_last_run_end_timestamp_seconds", RUN, "Time when the last run ended."),
    Definition("sparkwap_last_run_duration_seconds", RUN,
        "Seconds from start to end of the last run."),
    Definition("sparkwap_last_run_outcome", (*RUN, "outcome"),
        "1 for the outcome of the last run, 0 for the others."),
    Definition("sparkwap_last_run_tests", (*RUN, "status"),
        "Tests of the last run by status; not_run are those that did not audit a candidate."),
    Definition("sparkwap_runs_total", (*RUN, "outcome"),
        "Runs in the ledger that have ended, by outcome."),
    Definition("sparkwap_rebuilds_total", RUN,
        "Rebuilds of runs whose publish was refused because main had moved."),
    Definition("sparkwap_rebuild_wait_seconds_total", RUN,
        "Seconds that runs have waited before such rebuilds."),
    Definition("sparkwap_last_publish_timestamp_seconds", RUN,
        "Time of the last publish that was not rolled back; 0 if all were."),
    Definition("sparkwap_publishes_total", RUN,
        "Publishes in the ledger, also those that were rolled back."),
    Definition("sparkwap_rollbacks_total", RUN,
        "Publishes that were rolled back as a whole or in part."),
    Definition("sparkwap_table_last_publish_timestamp_seconds", TABLE,
        "Time of the table's last publish that was not rolled back."),
    Definition("sparkwap_table_last_rollback_timestamp_seconds", TABLE,
        "Time of the last rollback of the table."),
    Definition("sparkwap_table_rolled_back", TABLE,
        "1 if the table's last publish was rolled back, otherwise 0."),
    Definition("sparkwap_table_last_unpublished_timestamp_seconds", VERDICT,
        "Time of the table's last verdict held or rejected."),
    Definition("sparkwap_open_branches", RUN, "Open audit branches."),
    Definition("sparkwap_open_branches_oldest_timestamp_seconds", RUN,
        "Time of the first write to the oldest open audit branch."),
    Definition("sparkwap_open_branch_tables", (*RUN, "state"),
        "Tables on open audit branches, by state."),
    Definition("sparkwap_open_branch_tables_oldest_timestamp_seconds", (*RUN, "state"),
        "Time since when the first of these tables has been in this state."),
    Definition("sparkwap_unreadable_tables", PROJECT,
        "Tables and views of the lake whose metadata cannot be read."),
    Definition("sparkwap_landing_up", MODEL,
        "1 if landing folder or topic, table and quarantine of the raw model could be read."),
    Definition("sparkwap_landing_unread_files", MODEL,
        "Files in the landing folder that are not in the published raw table."),
    Definition("sparkwap_landing_oldest_unread_timestamp_seconds", MODEL,
        "Change time (ctime) of the unread file that has been waiting longest."),
    Definition("sparkwap_landing_unread_messages", MODEL,
        "Messages of the Kafka topic that are not in the published raw table."),
    Definition("sparkwap_quarantined_rows", MODEL,
        "Rows in quarantine of the published raw table that no replay has accepted."),
)  # fmt: skip
"""All metrics, in the order of the file."""


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
    """Write a Prometheus file; a reader sees the old or the new one, as a rename replaces it."""
    try:
        write_to_textfile(str(path), registry(samples))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. No metrics were written; an "
            "earlier file is as it was. Choose another file with --file"
        ) from error
