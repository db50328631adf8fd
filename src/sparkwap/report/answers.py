"""The lake's history, as the answers to what Elementary's report asks a warehouse.

Elementary keeps its own tables and asks for their rows by macros of its dbt project, such as
``get_test_results``. Each function here is the answer to one of them. Only dbt's manifest and the
ledger are looked at: no Spark, no dbt, and nothing of Elementary's.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from sparkwap.core.personal import PersonalMarks

Row = Mapping[str, Any]
Answer = list[dict[str, Any]]

GATE = "gate"
"""Name of the test that stands for the gate's verdict on a table."""

_VERDICTS = {"published": "pass", "held": "warn", "rejected": "fail"}
# The page knows no other words for what became of a model's run.
_RUN_STATUSES = {"published": "success", "held": "partial success", "rejected": "error"}
_SHOWN_STATUSES = frozenset({"pass", "warn", "fail", "error"})
_TABLE_TYPES = ("model", "seed", "snapshot")
# The page's dashboard knows Elementary's own audits by their names.
_PAGE_NAMES = {
    "wap_volume_anomaly": "volume_anomalies",
    "wap_freshness_anomaly": "freshness_anomalies",
    "wap_column_anomaly": "column_anomalies",
    "wap_schema_changes": "schema_changes",
}
_METRIC_TYPES = {"age_hours": "freshness"}


@dataclass(frozen=True)
class ReportFacts:
    """All that the report is made of.

    Attributes:
        manifest: dbt's ``manifest.json``.
        runs: The ledger's table of that name, as are ``nodes``, ``tests`` and ``metrics``.
        database: The catalog's name.
        now: The time of the report (UTC).
        days: How many days of history it shows.
        samples: Rows that a test has stored, by the test's id.
        sources: dbt's ``sources.json``; None if there is none.
    """

    manifest: Mapping[str, Any]
    runs: Sequence[Row]
    nodes: Sequence[Row]
    tests: Sequence[Row]
    metrics: Sequence[Row]
    database: str
    now: datetime
    days: int = 30
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    sources: Mapping[str, Any] | None = None

    @cached_property
    def marks(self) -> PersonalMarks:
        """Which columns are personal."""
        return PersonalMarks(self.known.get)

    def shown(self, test_id: str) -> list[dict[str, Any]]:
        """The rows that a test has stored, without what may be personal."""
        rows = [dict(row) for row in self.samples.get(test_id) or ()]
        names = list(rows[0]) if rows else []
        kept = [names[place] for place in self.marks.shown(test_id, names)]
        return [{name: row[name] for name in kept} for row in rows] if kept else []

    @cached_property
    def known(self) -> Mapping[str, Row]:
        """Models, seeds, snapshots, tests and sources of the project, by unique id."""
        return {
            **self.manifest["nodes"],
            **self.manifest.get("sources", {}),
            **self.manifest.get("unit_tests", {}),
        }

    @cached_property
    def plots(self) -> Mapping[tuple[str, str], list[Row]]:
        """The metrics of the report's days, by test and metric, the oldest first."""
        found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.recent(self.metrics, "measured_at"):
            found[row["test_id"], row["metric"]].append(row)
        return found

    @cached_property
    def project(self) -> str:
        """The project's name."""
        return str(self.manifest["metadata"]["project_name"])

    def recent(self, rows: Iterable[Row], time: str) -> list[Row]:
        """Those rows that are within the report's days, the oldest first."""
        since = self.now - timedelta(days=self.days)
        return sorted((row for row in rows if row[time] >= since), key=lambda row: row[time])

    def of_type(self, *types: str) -> list[Row]:
        """The project's nodes of these types."""
        return [node for node in self.known.values() if node["resource_type"] in types]


def as_built(
    manifest: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    target: str,
    *,
    all_schemas: bool = False,
) -> dict[str, Any]:
    """The manifest with what is switched off in it as the last run has left it.

    A variable may switch a model off in one call and on in another, and give it another schema
    there.

    Args:
        manifest: dbt's ``manifest.json``.
        tables: ``runs``, ``nodes`` and ``tests`` of the ledger.
        target: The target whose runs count.
        all_schemas: Each node stands in the schema where a run of the target last built it, also
            one that has another in the manifest.
    """
    own = _runs_of(manifest, tables["runs"], target)
    nodes = manifest["nodes"]
    disabled = {key: found[-1] for key, found in (manifest.get("disabled") or {}).items() if found}
    off = {key: node for key, node in disabled.items() if key not in nodes}
    known = {**off, **nodes} if all_schemas else off
    schemas = {row["node_id"]: row["schema"]
               for row in sorted(tables["nodes"], key=lambda row: row["built_at"])
               if row["run_id"] in own and row["node_id"] in known and row["schema"]}  # fmt: skip
    reads = {row["test_id"]: sorted(dict(row["audited"] or {}))
             for row in sorted(tables["tests"], key=lambda row: row["executed_at"])
             if row["run_id"] in own and row["test_id"] in off}  # fmt: skip
    found = {key: {**known[key], "schema": schema} for key, schema in schemas.items()}
    found |= {key: {**off[key], "depends_on": {"nodes": above}} for key, above in reads.items()}
    return {**manifest, "nodes": {**nodes, **found}}


def _runs_of(manifest: Mapping[str, Any], runs: Iterable[Row], target: str) -> set[str]:
    """Ids of the runs of this project with this target."""
    wanted = manifest["metadata"]["project_name"], target
    return {row["run_id"] for row in runs if (row["project"], row["target"]) == wanted}


def as_they_stand(nodes: Iterable[Row], undone: Collection[tuple[str, str, str]]) -> list[Row]:
    """The rows of ``nodes``; what was published and rolled back is held.

    Args:
        nodes: Rows of the ledger.
        undone: Run, schema and name of the tables whose publish was rolled back.
    """
    return [
        {**row, "verdict": "held", "reason": "its publish was rolled back"}
        if row["verdict"] == "published" and (row["run_id"], row["schema"], row["name"]) in undone
        else row
        for row in nodes
    ]


def ours(
    manifest: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    target: str,
    *,
    all_schemas: bool = False,
) -> dict[str, list[Row]]:
    """The rows of runs of this project, by the ledger's table.

    Those that built in the manifest's schemas; a lake has runs of other projects too, and of the
    same one in a developer's schema, with the same ids.

    Args:
        manifest: dbt's ``manifest.json``; see `as_built`.
        tables: ``runs``, ``nodes`` and others of the ledger, all of whose rows have a ``run_id``.
        target: The target of the report.
        all_schemas: Runs of the target count wherever they built.
    """
    project, nodes = manifest["metadata"]["project_name"], manifest["nodes"]
    schemas = {node["schema"] for node in nodes.values()}
    foreign = {row["run_id"] for row in tables["runs"] if row["project"] not in (None, project)}
    built: dict[str, set[str]] = {}
    for row in tables["nodes"]:
        if row["schema"] is not None:
            built.setdefault(row["run_id"], set()).add(row["schema"])
            known = nodes.get(row["node_id"])
            if known is not None and row["schema"] != known["schema"]:
                foreign.add(row["run_id"])
    # What they have built may be in this project no more, or not yet.
    foreign |= {run_id for run_id, wrote in built.items() if not wrote & schemas}
    if all_schemas:
        foreign -= _runs_of(manifest, tables["runs"], target)
    return {
        name: [row for row in rows if row["run_id"] not in foreign] for name, rows in tables.items()
    }


def answers(facts: ReportFacts) -> dict[str, Any]:
    """All answers, by the names of Elementary's macros."""
    results = test_results(facts)
    given: dict[str, Callable[[ReportFacts], Any]] = {
        "get_models": lambda f: artifacts(f, "model"),
        "get_seeds": lambda f: artifacts(f, "seed"),
        "get_snapshots": snapshots,
        "get_sources": lambda f: artifacts(f, "source"),
        "get_exposures": exposures,
        "get_singular_tests": singular_tests,
        "get_models_runs": model_runs,
        "get_dbt_models_test_coverage": coverage,
        "get_tests": lambda f: tests(f, results),
        "get_test_results": lambda _: results,
        "get_source_freshness_results": freshness,
        "get_nodes_depends_on_nodes": lineage,
        "get_models_latest_invocation": latest_runs,
        "get_models_latest_invocations_data": invocations,
        "get_test_last_invocation": lambda f: invocations(f)[-1:],
        "get_latest_invocation": lambda f: [{"project_name": f.project}],
        "get_adapter_type_and_unique_id": lambda f: ["spark", f.database],
    }
    return {name: answer(facts) for name, answer in given.items()}


# Artifacts


def artifacts(facts: ReportFacts, kind: str) -> Answer:
    """Models, seeds, snapshots or sources."""
    return [_artifact(facts, node) for node in facts.of_type(kind)]


def snapshots(facts: ReportFacts) -> Answer:
    """Snapshots, of which more is asked than of models."""
    return [
        {
            **_artifact(facts, node),
            "depends_on_macros": json.dumps(_depends_on(node, "macros")),
            "depends_on_nodes": json.dumps(_depends_on(node)),
            "path": node["path"],
            "generated_at": _iso(facts.now),
            "unique_key": json.dumps(node["config"].get("unique_key")),
            "incremental_strategy": None,
        }
        for node in facts.of_type("snapshot")
    ]


def exposures(facts: ReportFacts) -> Answer:
    """Exposures."""
    return [
        {
            "name": node["name"],
            "unique_id": key,
            "owners": [(node.get("owner") or {}).get("name")] if node.get("owner") else [],
            "tags": list(node.get("tags") or ()),
            "package_name": node["package_name"],
            "description": node.get("description"),
            "full_path": node["original_file_path"],
            "meta": dict(node.get("meta") or {}),
            "label": node.get("label"),
            "url": node.get("url"),
            "type": node.get("type"),
            "maturity": node.get("maturity"),
            "depends_on_nodes": _depends_on(node),
            "owner": node.get("owner"),
        }
        for key, node in facts.manifest.get("exposures", {}).items()
    ]


def singular_tests(facts: ReportFacts) -> Answer:
    """Tests that are a query of their own."""
    return [
        {
            "unique_id": node["unique_id"],
            "name": node["name"],
            "original_path": node["original_file_path"],
            "package_name": node["package_name"],
            "tags": list(node.get("tags") or ()),
        }
        for node in facts.of_type("test")
        if not node.get("test_metadata")
    ]


def coverage(facts: ReportFacts) -> Answer:
    """How many tests each table and its columns have."""
    columns: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    for test in facts.of_type("test", "unit_test"):
        parent = _tested(facts, test)
        if parent is not None:
            (columns if test.get("column_name") else tables)[parent] += 1
    return [
        {"model_unique_id": key, "column_tests": columns[key], "table_tests": tables[key]}
        for key in sorted({*columns, *tables})
    ]


def lineage(facts: ReportFacts) -> Answer:
    """What each node reads."""
    nodes = [
        {
            "unique_id": node["unique_id"],
            "depends_on_nodes": json.dumps(_depends_on(node)),
            "materialization": node.get("config", {}).get("materialized"),
            "type": node["resource_type"],
        }
        for node in facts.of_type(*_TABLE_TYPES, "source")
    ]
    return nodes + [
        {
            "unique_id": key,
            "depends_on_nodes": json.dumps(_depends_on(node)),
            "materialization": None,
            "type": "exposure",
        }
        for key, node in facts.manifest.get("exposures", {}).items()
    ]


# Runs


def invocations(facts: ReportFacts) -> Answer:
    """The runs; the page can filter by what they came to, which stands where a job's name would."""
    return [
        {
            "invocation_id": run["run_id"],
            "detected_at": _iso(run["started_at"]),
            "command": run["command"],
            "job_name": run["outcome"],
            "job_id": run["branch"],
            "job_run_id": run["run_id"],
        }
        for run in facts.recent(facts.runs, "started_at")
    ]


def model_runs(facts: ReportFacts) -> Answer:
    """Each build of each table, with what the gate said of it for a status."""
    return [
        {
            "unique_id": row["node_id"],
            "invocation_id": row["run_id"],
            "name": facts.known[row["node_id"]]["name"],
            "schema": row["schema"],
            "status": _RUN_STATUSES.get(row["verdict"], row["verdict"]),
            "execution_time": row["seconds"] or 0.0,
            "full_refresh": None,
            "materialization": facts.known[row["node_id"]]["config"].get("materialized"),
            "compiled_code": facts.known[row["node_id"]].get("compiled_code"),
            "generated_at": _iso(row["built_at"]),
        }
        for row in _verdicts(facts)
    ]


def latest_runs(facts: ReportFacts) -> Answer:
    """The last run of each table."""
    last = {row["node_id"]: row["run_id"] for row in _verdicts(facts)}
    return [{"unique_id": key, "invocation_id": run_id} for key, run_id in last.items()]


def _verdicts(facts: ReportFacts) -> list[Row]:
    """The gate's verdicts on tables that are still in the project, the oldest first."""
    return [
        row
        for row in facts.recent(facts.nodes, "built_at")
        if row["node_id"] in facts.known and row["verdict"] in _VERDICTS
    ]


# Tests


def tests(facts: ReportFacts, results: Iterable[Row]) -> Answer:
    """All tests, and the gate as one for each table, with their first and last result."""
    first: dict[str, Row] = {}
    last: dict[str, Row] = {}
    for row in sorted(results, key=lambda row: row["detected_at"]):
        first.setdefault(row["test_unique_id"], row)
        last[row["test_unique_id"]] = row
    listed = [_test(facts, test) for test in facts.of_type("test", "unit_test")]
    listed += [_gate_test(facts, node) for node in facts.of_type(*_TABLE_TYPES) if _is_table(node)]
    return [
        {
            **test,
            "created_at": first[key]["detected_at"] if key in first else None,
            "latest_run_time": last[key]["detected_at"] if key in last else None,
            "latest_run_status": last[key]["status"] if key in last else None,
            "test_type": last[key]["test_type"] if key in last else "dbt_test",
            "test_sub_type": last[key]["test_sub_type"] if key in last else None,
        }
        for test in listed
        for key in (test["unique_id"],)
    ]


def test_results(facts: ReportFacts) -> Answer:
    """The results of all tests, and the gate's verdicts, ranked from the newest of each test."""
    rows = [*_dbt_results(facts), *_gate_results(facts)]
    ranks: Counter[str] = Counter()
    ranked = []
    for row in sorted(rows, key=lambda row: row["detected_at"], reverse=True):
        key = row["elementary_unique_id"]
        ranks[key] += 1
        if ranks[key] > 1:
            row["sample_data"] = row["test_results_query"] = None
        ranked.append({**row, "invocations_rank_index": ranks[key]})
    return ranked[::-1]


def _dbt_results(facts: ReportFacts) -> Iterable[dict[str, Any]]:
    measured: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in facts.recent(facts.metrics, "measured_at"):
        measured[row["run_id"], row["test_id"]].append(row)
    for row in facts.recent(facts.tests, "executed_at"):
        test = facts.known.get(row["test_id"])
        if test is None or row["status"] not in _SHOWN_STATUSES:
            continue
        metrics = measured.get((row["run_id"], row["test_id"]), [])
        for metric in metrics:
            yield _metric_result(facts, test, row, metric)
        if not metrics:
            yield _plain_result(facts, test, row)


def _plain_result(facts: ReportFacts, test: Row, row: Row) -> dict[str, Any]:
    said = row["finding"] or row["message"]
    bad = row["status"] in ("fail", "warn")
    schema = _page_name(test) == "schema_changes"
    if said and row["status"] == "error":
        said = facts.marks.error_class(said, row["test_id"])
    samples = facts.shown(row["test_id"])
    return {
        **_result(facts, _test(facts, test), row["run_id"], row["executed_at"]),
        "test_type": "schema_change" if schema else "dbt_test",
        "test_results_description": said if row["status"] != "pass" else None,
        "status": row["status"],
        "failures": row["failures"],
        "severity": row["severity"],
        "execution_time": row["seconds"],
        "sample_data": samples if samples and bad else None,
    }


def _metric_result(facts: ReportFacts, test: Row, row: Row, metric: Row) -> dict[str, Any]:
    kind, _, column = metric["metric"].partition(":")
    anomalous = metric["state"] == "anomalous"
    history = [
        one
        for one in facts.plots[row["test_id"], metric["metric"]]
        if one["measured_at"] <= metric["measured_at"]
    ]
    about = _test(facts, test)
    return {
        **_result(facts, about, row["run_id"], row["executed_at"]),
        "elementary_unique_id": f"{about['unique_id']}.{column or None}.{kind}",
        "column_name": column or None,
        "test_type": "anomaly_detection",
        "test_sub_type": _METRIC_TYPES.get(kind, kind),
        "test_results_description": row["finding"] if anomalous else None,
        # Of several metrics of a test only those that were anomalies have failed.
        "status": row["status"] if anomalous or row["status"] == "error" else "pass",
        "failures": None,
        "severity": row["severity"],
        "execution_time": row["seconds"],
        "sample_data": [_point(one) for one in history],
    }


def _point(metric: Row) -> dict[str, Any]:
    """One point of the plot of a metric, with the range that was expected."""
    return {
        "value": metric["value"],
        "average": metric["mean"],
        "min_value": metric["low"],
        "max_value": metric["high"],
        "start_time": _iso(metric["measured_at"]),
        "end_time": _iso(metric["measured_at"]),
        "is_anomalous": metric["state"] == "anomalous",
    }


def _gate_results(facts: ReportFacts) -> Iterable[dict[str, Any]]:
    for row in _verdicts(facts):
        node = facts.known[row["node_id"]]
        if not _is_table(node):
            continue
        verdict = row["verdict"]
        why = f": {facts.marks.harmless(row['reason'], row['node_id'])}" if row["reason"] else ""
        yield {
            **_result(facts, _gate_test(facts, node), row["run_id"], row["built_at"]),
            "test_type": "dbt_test",
            # The page takes the first number for one of rows.
            "test_results_description": None
            if verdict == "published"
            else f"1 table {verdict}{why}",
            "status": _VERDICTS[verdict],
            "failures": None if verdict == "published" else 1,
            "severity": "error",
            "execution_time": row["seconds"],
            "sample_data": None,
        }


def _result(facts: ReportFacts, test: Row, run_id: str, at: datetime) -> dict[str, Any]:
    """What a result has from its test."""
    test_id, column = test["unique_id"], test["column_name"]
    return {
        "id": f"{test_id}.{run_id}",
        "invocation_id": run_id,
        "test_execution_id": f"{test_id}.{run_id}",
        "model_unique_id": test["model_unique_id"],
        "test_unique_id": test_id,
        "elementary_unique_id": f"{test_id}.{column}.{test['type']}",
        "detected_at": _iso(at),
        "database_name": test["database_name"],
        "schema_name": test["schema_name"],
        "table_name": test["table_name"],
        "column_name": column,
        "test_sub_type": test["type"],
        "test_description": test["description"],
        "original_path": test["original_path"],
        "package_name": test["package_name"],
        "owners": _owners({"config": {"meta": test["meta"]}}),
        "model_owner": _owners({"config": {"meta": test["model_meta"]}}),
        "tags": sorted({*test["tags"], *test["model_tags"]}),
        "test_tags": test["tags"],
        "model_tags": test["model_tags"],
        "meta": test["meta"],
        "model_meta": test["model_meta"],
        "test_results_query": test["query"],
        "other": None,
        "test_name": test["short_name"],
        "test_params": test["test_params"],
        "test_created_at": None,
        "days_diff": (facts.now - at) / timedelta(days=1),
    }


def _test(facts: ReportFacts, test: Row) -> dict[str, Any]:
    metadata = test.get("test_metadata") or {}
    arguments = metadata.get("kwargs") or {}
    kind = "generic" if metadata else "singular"
    return {
        **_about(facts, _tested(facts, test)),
        "unique_id": test["unique_id"],
        "column_name": test.get("column_name"),
        "name": test["name"],
        "short_name": _page_name(test),
        "description": test.get("description"),
        "package_name": test["package_name"],
        "original_path": test["original_file_path"],
        "test_params": {key: value for key, value in arguments.items() if key != "model"},
        "meta": dict((test.get("config") or {}).get("meta") or {}),
        "tags": list(test.get("tags") or ()),
        "type": "unit" if test["resource_type"] == "unit_test" else kind,
        "query": test.get("compiled_code"),
    }


def _gate_test(facts: ReportFacts, node: Row) -> dict[str, Any]:
    """The gate's verdict on a table, as if it were a test of it."""
    return {
        **_about(facts, node["unique_id"]),
        "unique_id": f"test.{facts.project}.{GATE}.{node['unique_id']}",
        "column_name": None,
        "name": f"{GATE}_{node['name']}",
        "short_name": GATE,
        "description": (
            "What the gate said of the table, run by run: passed is published, warning is held on "
            "the audit branch, failed is rejected."
        ),
        "package_name": node["package_name"],
        "original_path": node["original_file_path"],
        "test_params": {},
        "meta": {},
        "tags": [GATE],
        "type": "generic",
        "query": None,
    }


def _about(facts: ReportFacts, node_id: str | None) -> dict[str, Any]:
    """What a test says of the table that it is about."""
    node: Row = facts.known.get(node_id or "", {})
    return {
        "model_unique_id": node_id,
        "database_name": facts.database,
        "schema_name": node.get("schema", ""),
        "table_name": node.get("alias") or node.get("identifier"),
        "model_meta": dict((node.get("config") or {}).get("meta") or {}),
        "model_tags": list(node.get("tags") or ()),
    }


def _tested(facts: ReportFacts, test: Row) -> str | None:
    """The table that a test is about: what it is attached to, or the first that it reads."""
    attached = test.get("attached_node")
    if attached:
        return str(attached)
    return next((node for node in _depends_on(test) if node in facts.known), None)


def _page_name(test: Row) -> str:
    name = str((test.get("test_metadata") or {}).get("name") or test["name"])
    return _PAGE_NAMES.get(name, name)


# Source freshness


def freshness(facts: ReportFacts) -> Answer:
    """The last ``dbt source freshness``, if there was one."""
    if facts.sources is None:
        return []
    metadata = facts.sources["metadata"]
    return [
        {
            "source_freshness_execution_id": f"{metadata['invocation_id']}.{one['unique_id']}",
            "unique_id": one["unique_id"],
            "max_loaded_at": one.get("max_loaded_at"),
            "snapshotted_at": one.get("snapshotted_at"),
            "max_loaded_at_time_ago_in_s": one.get("max_loaded_at_time_ago_in_s"),
            "generated_at": metadata["generated_at"],
            "status": {"error": "fail", "runtime error": "error"}.get(one["status"], one["status"]),
            "original_status": one["status"],
            "error": one.get("error"),
            "invocation_id": metadata["invocation_id"],
            "database_name": facts.database,
            "schema_name": source["schema"],
            "source_name": source["source_name"],
            "table_name": source["identifier"],
            "test_type": "source_freshness",
            "test_sub_type": "freshness",
            "loaded_at_field": source.get("loaded_at_field"),
            "meta": dict(source.get("meta") or {}),
            "owners": _owners(source),
            "tags": list(source.get("tags") or ()),
            "error_after": (one.get("criteria") or {}).get("error_after"),
            "warn_after": (one.get("criteria") or {}).get("warn_after"),
            "filter": (one.get("criteria") or {}).get("filter"),
            "relation_name": source.get("relation_name") or source["identifier"],
            "invocations_rank_index": 1,
        }
        for one in facts.sources["results"]
        if (source := facts.known.get(one["unique_id"])) is not None
    ]


# What all artifacts have


def _artifact(facts: ReportFacts, node: Row) -> dict[str, Any]:
    return {
        "name": node["name"],
        "unique_id": node["unique_id"],
        "owners": _owners(node),
        "tags": list(node.get("tags") or ()),
        "package_name": node["package_name"],
        "description": node.get("description"),
        "full_path": node["original_file_path"],
        "meta": dict((node.get("config") or {}).get("meta") or {}),
        "materialization": (node.get("config") or {}).get("materialized"),
        "database_name": facts.database,
        "schema_name": node["schema"],
        "table_name": node.get("alias") or node["identifier"],
        "source_name": node.get("source_name"),
        "patch_path": node.get("patch_path"),
    }


def _is_table(node: Row) -> bool:
    return (node.get("config") or {}).get("materialized") != "ephemeral"


def _owners(node: Row) -> list[str]:
    """``meta.owner``: one, several by comma, or a list."""
    owner = ((node.get("config") or {}).get("meta") or node.get("meta") or {}).get("owner")
    if isinstance(owner, str):
        return [part.strip() for part in owner.split(",") if part.strip()]
    return [str(one) for one in owner] if isinstance(owner, list | tuple) else []


def _depends_on(node: Row, what: str = "nodes") -> list[str]:
    return list((node.get("depends_on") or {}).get(what) or ())


def _iso(at: datetime) -> str:
    # Always of one length, so that texts sort as times do.
    return at.isoformat(timespec="microseconds")


def utc_now() -> datetime:
    """The time of a report."""
    return datetime.now(UTC)
