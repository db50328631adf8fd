"""The metrics that anomaly audits compare with: those of what is published, out of the ledger.

An audit measures the candidate; its figures go into the ledger with the test's result, whatever
becomes of the candidate. Here those are picked that were published and not rolled back, so that a
rejected candidate never shifts what is expected of the next one.
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
from sparkwap.ledger.rollback_plan import undone_entries, undone_key

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.publish.lake import Lake

ROW_COUNT = "row_count"
_DELETES = ("total-position-deletes", "total-equality-deletes")
_NUMBERS = ("value", "mean", "spread", "score", "low", "high")


@dataclass(frozen=True, slots=True)
class Measured:
    """What an audit has measured of a node's candidate.

    Attributes:
        node_id: The node.
        scope: What else the metrics depend on, such as the test's ``where``; empty for nothing.
        at: When (UTC).
        judgements: The metrics, and what was expected of them.
    """

    node_id: str
    scope: str
    at: datetime
    judgements: tuple[AnomalyResult, ...]

    @property
    def finding(self) -> str | None:
        """The anomalies in words; None if there is none."""
        return "; ".join(one.words() for one in self.judgements if one.anomalous) or None

    def rows(self, common: Mapping[str, Any], candidate: str) -> list[dict[str, Any]]:
        """Its rows in the ledger's ``metrics``."""
        return [
            {
                **common,
                "node_id": self.node_id,
                "metric": one.metric,
                "scope": self.scope,
                "candidate": candidate,
                "measured_at": self.at,
                "state": one.state,
                "samples": one.samples,
                **{name: getattr(one, name) for name in _NUMBERS},
            }
            for one in self.judgements
        ]


@dataclass(frozen=True, slots=True)
class PublishedCandidate:
    """A candidate that was published and not rolled back.

    Attributes:
        token: How the gate calls it: a snapshot id, or a metadata file.
        snapshot: The snapshot that ``main`` came to; None for views.
        at: When it was published (UTC).
    """

    token: str
    snapshot: int | None
    at: datetime


def published(
    publishes: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]
) -> dict[Identifier, list[PublishedCandidate]]:
    """The published candidates of each table, the oldest first.

    Args:
        publishes: The ledger's ``publishes``, rollbacks included.
        nodes: The ledger's ``nodes``.
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
        token = node["candidate_snapshot"] or node["candidate_metadata"]
        if publish is not None and node["verdict"] == "published" and token is not None:
            found[_key(node)][str(token)] = PublishedCandidate(
                str(token), publish["candidate_snapshot"], publish["published_at"]
            )
    return {
        name: sorted(candidates.values(), key=lambda one: one.at)
        for name, candidates in found.items()
    }


def samples(
    candidates: Iterable[PublishedCandidate],
    metrics: Iterable[Mapping[str, Any]],
    metric: str,
    scope: str = "",
) -> dict[str, PastValue]:
    """One metric of a table's published candidates, by their tokens.

    Of several measurements of one candidate the latest counts.

    Args:
        candidates: Those of the table.
        metrics: The rows of the table in the ledger's ``metrics``.
        metric: Which metric.
        scope: Which of the metric's scopes.
    """
    tokens = {one.token for one in candidates}
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
    """How many rows a snapshot has, by its summary; None where that does not tell.

    Delete files may name rows that are gone already, so that they can only be counted by reading.
    """
    if any(int(summary.get(key) or 0) for key in _DELETES):
        return None
    total = summary.get("total-records")
    return None if total is None else int(total)


class Baselines:
    """What the anomaly audits of one invocation compare with; safe for use by several threads.

    The ledger is read once, by the first audit that asks.

    Args:
        lake: The lake.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._read: tuple[dict[Identifier, list[PublishedCandidate]], _Rows] | None = None

    def history(self, identifier: Identifier, metric: str, scope: str = "") -> list[PastValue]:
        """A metric of the published candidates of a table.

        Row counts that no audit has measured are taken from the metadata of the snapshots, as far
        as they have not expired: so a new audit of the volume knows what was published before it.
        """
        candidates, metrics = self._ledger()
        name = folded(identifier)
        known = candidates.get(name, [])
        found = samples(known, metrics.get(name, ()), metric, scope)
        if metric == ROW_COUNT and not scope:
            for one in known:
                count = None if one.token in found else self._rows_of(identifier, one.snapshot)
                if count is not None:
                    found[one.token] = PastValue(count, one.at)
        return list(found.values())

    def _rows_of(self, identifier: Identifier, snapshot: int | None) -> int | None:
        if snapshot is None:
            return None
        try:
            return exact_rows(self._lake.snapshot_summary(identifier, snapshot))
        except CatalogError:
            return None  # it has expired

    def _ledger(self) -> tuple[dict[Identifier, list[PublishedCandidate]], _Rows]:
        with self._lock:
            if self._read is None:
                ledger = self._lake.ledger
                metrics: defaultdict[Identifier, list[Mapping[str, Any]]] = defaultdict(list)
                for row in ledger.rows("metrics"):
                    metrics[_key(row)].append(row)
                self._read = published(ledger.rows("publishes"), ledger.rows("nodes")), metrics
            return self._read


_Rows = Mapping["Identifier", Sequence[Mapping[str, Any]]]


def rows_sql(judgements: Iterable[AnomalyResult]) -> str:
    """A query that returns the anomalies, one row each: what the dbt test is to Spark.

    The figures were measured and judged before; they stand in the query, and so in dbt's compiled
    file and in the stored failures.
    """
    columns = ", ".join(("metric", *_NUMBERS, "samples"))
    rows = [
        f"({literal(one.metric)}, "
        f"{', '.join(_double(getattr(one, name)) for name in _NUMBERS)}, {one.samples})"
        for one in judgements
        if one.anomalous
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
