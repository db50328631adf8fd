"""The names, labels and help texts of all metrics; docs/metrics.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass

PROJECT = ("project", "target")
RUN = (*PROJECT, "branch_kind")
TABLE = (*PROJECT, "schema", "table")
MODEL = (*PROJECT, "model")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name; that of a counter ends with ``_total``.
        labels: The names of its labels.
        help: Its meaning.
    """

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def is_counter(self) -> bool:
        """Whether its value never decreases."""
        return self.name.endswith("_total")


METRICS = (
    Metric(
        "sparkwap_metrics_timestamp_seconds",
        PROJECT,
        "Time when these metrics were gathered.",
    ),
    Metric(
        "sparkwap_metrics_duration_seconds",
        PROJECT,
        "Seconds that it took to gather these metrics.",
    ),
    Metric(
        "sparkwap_part_up",
        (*PROJECT, "part"),
        "1 if this part could be read, 0 if not: then its metrics are missing.",
    ),
    Metric(
        "sparkwap_lake_exists",
        PROJECT,
        "1 if the catalog of the lake exists, 0 if no build has created it yet.",
    ),
    Metric(
        "sparkwap_last_run_end_timestamp_seconds",
        RUN,
        "Time when the last run ended.",
    ),
    Metric(
        "sparkwap_last_run_duration_seconds",
        RUN,
        "Seconds from start to end of the last run.",
    ),
    Metric(
        "sparkwap_last_run_outcome",
        (*RUN, "outcome"),
        "1 for the outcome of the last run, 0 for the others.",
    ),
    Metric(
        "sparkwap_last_run_tests",
        (*RUN, "status"),
        "Tests of the last run by status; not_run are those that did not audit a candidate.",
    ),
    Metric(
        "sparkwap_runs_total",
        (*RUN, "outcome"),
        "Runs in the ledger that have ended, by outcome.",
    ),
    Metric(
        "sparkwap_rebuilds_total",
        RUN,
        "Rebuilds of runs whose publish was refused because main had moved.",
    ),
    Metric(
        "sparkwap_rebuild_wait_seconds_total",
        RUN,
        "Seconds that runs have waited before such rebuilds.",
    ),
    Metric(
        "sparkwap_last_publish_timestamp_seconds",
        RUN,
        "Time of the last publish that was not rolled back; 0 if all were.",
    ),
    Metric(
        "sparkwap_publishes_total",
        RUN,
        "Publishes in the ledger, also those that were rolled back.",
    ),
    Metric(
        "sparkwap_rollbacks_total",
        RUN,
        "Publishes that were rolled back as a whole or in part.",
    ),
    Metric(
        "sparkwap_table_last_publish_timestamp_seconds",
        TABLE,
        "Time of the table's last publish that was not rolled back.",
    ),
    Metric(
        "sparkwap_table_last_rollback_timestamp_seconds",
        TABLE,
        "Time of the last rollback of the table.",
    ),
    Metric(
        "sparkwap_table_rolled_back",
        TABLE,
        "1 if the table's last publish was rolled back, otherwise 0.",
    ),
    Metric(
        "sparkwap_table_last_unpublished_timestamp_seconds",
        (*RUN, "schema", "table", "verdict"),
        "Time of the table's last verdict held or rejected.",
    ),
    Metric(
        "sparkwap_open_branches",
        RUN,
        "Open audit branches.",
    ),
    Metric(
        "sparkwap_open_branches_oldest_timestamp_seconds",
        RUN,
        "Time of the first write to the oldest open audit branch.",
    ),
    Metric(
        "sparkwap_open_branch_tables",
        (*RUN, "state"),
        "Tables on open audit branches, by state.",
    ),
    Metric(
        "sparkwap_open_branch_tables_oldest_timestamp_seconds",
        (*RUN, "state"),
        "Time since when the first of these tables has been in this state.",
    ),
    Metric(
        "sparkwap_unreadable_tables",
        PROJECT,
        "Tables and views of the lake whose metadata cannot be read.",
    ),
    Metric(
        "sparkwap_landing_up",
        MODEL,
        "1 if landing folder or topic, table and quarantine of the raw model could be read.",
    ),
    Metric(
        "sparkwap_landing_unread_files",
        MODEL,
        "Files in the landing folder that are not in the published raw table.",
    ),
    Metric(
        "sparkwap_landing_oldest_unread_timestamp_seconds",
        MODEL,
        "Change time (ctime) of the unread file that has been waiting longest.",
    ),
    Metric(
        "sparkwap_landing_unread_messages",
        MODEL,
        "Messages of the Kafka topic that are not in the published raw table.",
    ),
    Metric(
        "sparkwap_quarantined_rows",
        MODEL,
        "Rows in quarantine of the published raw table that no replay has accepted.",
    ),
)
"""All metrics, in the order of the file."""
