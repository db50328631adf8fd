"""The metrics of published candidates, which anomaly audits compare with, from the ledger.

The ledger has the metrics of all audited candidates. This module selects those of candidates that
were published and not rolled back, so that a rejected candidate does not change the expected range.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparkwap.audits.anomaly import AnomalyResult, PastValue
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import folded
from sparkwap.core.sqltext import literal
from sparkwap.ledger.records import token_of
from sparkwap.ledger.rollback_plan import undone_entries, undone_key

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.publish.lake import Lake

ROW_COUNT = "row_count"
_DELETES = ("total-position-deletes", "total-equality-deletes")
_NUMBERS = ("value", "mean", "spread", "score", "low", "high")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of an audit of a node's candidate.

    Attributes:
        scope: A condition on the measured rows, such as the test's ``where``; empty for none.
        at: The time of the measurement (UTC).
    """

    node_id: str
    scope: str
    at: datetime
    judgements: tuple[AnomalyResult, ...]

    @property
    def finding(self) -> str | None:
        """The anomalies in words; None if there are none."""
        return "; ".join(result.words() for result in self.judgements if result.anomalous) or None

    def rows(self, common: Mapping[str, Any], candidate: str) -> list[dict[str, Any]]:
        """Return the rows for the ledger's table ``metrics``."""
        return [
            {
                **common,
                "node_id": self.node_id,
                "metric": result.metric,
                "scope": self.scope,
                "candidate": candidate,
                "measured_at": self.at,
                "state": result.state,
                "samples": result.samples,
                **{name: getattr(result, name) for name in _NUMBERS},
            }
            for result in self.judgements
        ]


@dataclass(frozen=True, slots=True)
class PublishedCandidate:
    """A candidate that was published and not rolled back.

    Attributes:
        token: The candidate's token in the gate: a snapshot id, or a metadata file.
        snapshot: The snapshot that the publish moved ``main`` to; None for views.
        at: The time of the publish (UTC).
    """

    token: str
    snapshot: int | None
    at: datetime


def published(
    publishes: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]
) -> dict[Identifier, list[PublishedCandidate]]:
    """Return the published candidates of each table, the oldest first.

    Args:
        publishes: The ledger's ``publishes``, including rollbacks.
    """
    publishes = list(publishes)
    undone = undone_entries(publishes)
    made = {
        (row["run_id"], *_key(row)): row
        for row in publishes
        if row["action"] == "publish" and undone_key(row) not in undone
    }
    found: defaultdict[Identifier, dict[str, PublishedCandidate]] = defaultdict(dict)
    for node in nodes:
        publish = made.get((node["run_id"], *_key(node)))
        token = token_of(node)
        if publish is not None and node["verdict"] == "published" and token is not None:
            found[_key(node)][token] = PublishedCandidate(
                token, publish["candidate_snapshot"], publish["published_at"]
            )
    return {
        name: sorted(candidates.values(), key=lambda candidate: candidate.at)
        for name, candidates in found.items()
    }


def samples(
    candidates: Iterable[PublishedCandidate],
    metrics: Iterable[Mapping[str, Any]],
    metric: str,
    scope: str = "",
) -> dict[str, PastValue]:
    """Return one metric of a table's published candidates, by their tokens.

    The latest measurement of each candidate counts.

    Args:
        metrics: The rows of the table in the ledger's ``metrics``.
    """
    tokens = {candidate.token for candidate in candidates}
    fitting = [
        row
        for row in metrics
        if row["metric"] == metric and (row["scope"] or "") == scope and row["candidate"] in tokens
    ]
    return {
        row["candidate"]: PastValue(row["value"], row["measured_at"])
        for row in sorted(fitting, key=lambda row: row["measured_at"])
        if row["value"] is not None
    }


def exact_rows(summary: Mapping[str, str]) -> int | None:
    """Return the number of rows of a snapshot by its summary; None if the summary is not exact.

    Delete files may name rows that do not exist, so only a scan can count the remaining rows.
    """
    if any(int(summary.get(key) or 0) for key in _DELETES):
        return None
    total = summary.get("total-records")
    return None if total is None else int(total)


class Baselines:
    """The past metrics for the anomaly audits of one invocation; thread-safe.

    The first audit reads the ledger for all of them.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._read: tuple[dict[Identifier, list[PublishedCandidate]], _Rows] | None = None

    def history(self, identifier: Identifier, metric: str, scope: str = "") -> list[PastValue]:
        """Return a metric of the published candidates of a table.

        Row counts that no audit has measured come from the metadata of the snapshots that have not
        expired, so that a new volume audit also has the candidates that were published before it.
        """
        candidates, metrics = self._ledger()
        name = folded(identifier)
        known = candidates.get(name, [])
        found = samples(known, metrics.get(name, ()), metric, scope)
        if metric == ROW_COUNT and not scope:
            for candidate in known:
                if candidate.token not in found:
                    count = self._rows_of(identifier, candidate.snapshot)
                    if count is not None:
                        found[candidate.token] = PastValue(count, candidate.at)
        return list(found.values())

    def _rows_of(self, identifier: Identifier, snapshot: int | None) -> int | None:
        if snapshot is None:
            return None
        try:
            return exact_rows(self._lake.snapshot_summary(identifier, snapshot))
        except CatalogError:
            return None  # the snapshot has expired

    def _ledger(self) -> tuple[dict[Identifier, list[PublishedCandidate]], _Rows]:
        with self._lock:
            if self._read is None:
                ledger = self._lake.ledger
                metrics: defaultdict[Identifier, list[Mapping[str, Any]]] = defaultdict(list)
                for row in ledger.rows("metrics"):
                    metrics[_key(row)].append(row)
                self._read = (
                    published(
                        ledger.read("publishes", columns=_OF_PUBLISHES),
                        ledger.read("nodes", columns=_OF_NODES),
                    ),
                    metrics,
                )
            return self._read


_TABLE = ("run_id", "schema", "name", "candidate_snapshot")
_OF_PUBLISHES = (*_TABLE, "publish_id", "action", "published_at")
_OF_NODES = (*_TABLE, "candidate_metadata", "verdict")
_Rows = Mapping["Identifier", Sequence[Mapping[str, Any]]]


def rows_sql(judgements: Iterable[AnomalyResult]) -> str:
    """Return a query that returns one row for each anomaly, as the query of the dbt test.

    The query contains the measured values, so that they are in dbt's compiled file and in the
    stored failures.
    """
    columns = ", ".join(("metric", *_NUMBERS, "samples"))
    rows = [
        f"({literal(result.metric)}, "
        f"{', '.join(_double(getattr(result, name)) for name in _NUMBERS)}, {result.samples})"
        for result in judgements
        if result.anomalous
    ]
    if rows:
        values = ",\n    ".join(rows)
        return f"select * from values\n    {values}\nas anomalies ({columns})"
    none = ", ".join(["''", *["cast(null as double)"] * len(_NUMBERS), "0"])
    return f"select * from values ({none}) as anomalies ({columns}) where false"


def _double(value: float | None) -> str:
    if value is None:
        return "cast(null as double)"
    if math.isinf(value) or math.isnan(value):
        return f"double('{value}')"
    return f"{value!r}D"


def _key(row: Mapping[str, Any]) -> Identifier:
    return folded((row["schema"], row["name"]))
