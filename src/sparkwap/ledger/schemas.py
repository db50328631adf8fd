"""The tables of the ledger and their columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_ID = pa.int64()
_BYTES = pa.binary()

_CALLER = {"actor": _TEXT, "host": _TEXT, "catalog_user": _TEXT}
_CALLER_OF_RUN = {**_CALLER, "project": _TEXT, "command": _TEXT}

SCHEMAS: Mapping[str, pa.Schema] = {
    "runs": pa.schema(
        {
            "run_id": _TEXT,
            "branch": _TEXT,
            "command": _TEXT,
            "project": _TEXT,
            "target": _TEXT,
            "started_at": _TIME,
            "ended_at": _TIME,
            "outcome": _TEXT,
            "message": _TEXT,
            "publish_id": _TEXT,
            "tries": _ID,
            "waited_seconds": pa.float64(),
            "rebuild_of": _TEXT,
            "manifest_hash": _TEXT,
            "session": _TEXT,
            "as_of": _TEXT,
            "pins": pa.map_(_TEXT, _TEXT),
            **_CALLER,
        }
    ),
    "nodes": pa.schema(
        {
            "run_id": _TEXT,
            "branch": _TEXT,
            "node_id": _TEXT,
            "resource_type": _TEXT,
            "schema": _TEXT,
            "name": _TEXT,
            "how": _TEXT,
            "base_snapshot": _ID,
            "base_metadata": _TEXT,
            "candidate_snapshot": _ID,
            "candidate_metadata": _TEXT,
            "status": _TEXT,
            "problem": _TEXT,
            "parents": pa.list_(_TEXT),
            "built_on": pa.map_(_TEXT, _TEXT),
            "verdict": _TEXT,
            "reason": _TEXT,
            "built_at": _TIME,
            "refusal": _TEXT,
            "reads": pa.map_(_TEXT, _TEXT),
            "seconds": pa.float64(),
            "batches": pa.list_(_TEXT),
            "named": pa.list_(_TEXT),
            "write_mode": _TEXT,
        }
    ),
    "tests": pa.schema(
        {
            "run_id": _TEXT,
            "branch": _TEXT,
            "test_id": _TEXT,
            "test_name": _TEXT,
            "status": _TEXT,
            "failures": _ID,
            "severity": _TEXT,
            "message": _TEXT,
            "audited": pa.map_(_TEXT, _TEXT),
            "executed_at": _TIME,
            "reads": pa.map_(_TEXT, _TEXT),
            "finding": _TEXT,
            "seconds": pa.float64(),
            "answered": _TEXT,
            "inputs": pa.map_(_TEXT, _TEXT),
            "code": _TEXT,
            "sql": _TEXT,
            "given": pa.map_(_TEXT, _TEXT),
            "named": pa.list_(_TEXT),
            "basis": _TEXT,
            "snapshot": _ID,
            "whole_at": _TIME,
            "increments": _ID,
            "parent_snapshot": _ID,
        }
    ),
    "acceptances": pa.schema(
        {
            "run_id": _TEXT,
            "branch": _TEXT,
            "test_id": _TEXT,
            "test_name": _TEXT,
            "severity": _TEXT,
            "failures": _ID,
            "audited": pa.map_(_TEXT, _TEXT),
            "accepted_by": _TEXT,
            "reason": _TEXT,
            "accepted_at": _TIME,
            "until": _TIME,
            "tables": pa.map_(_TEXT, _TEXT),
            **_CALLER_OF_RUN,
        }
    ),
    "metrics": pa.schema(
        {
            "run_id": _TEXT,
            "branch": _TEXT,
            "test_id": _TEXT,
            "node_id": _TEXT,
            "schema": _TEXT,
            "name": _TEXT,
            "metric": _TEXT,
            "scope": _TEXT,
            "value": pa.float64(),
            "candidate": _TEXT,
            "measured_at": _TIME,
            "state": _TEXT,
            "samples": _ID,
            "mean": pa.float64(),
            "spread": pa.float64(),
            "low": pa.float64(),
            "high": pa.float64(),
            "score": pa.float64(),
        }
    ),
    "publishes": pa.schema(
        {
            "publish_id": _TEXT,
            "run_id": _TEXT,
            "branch": _TEXT,
            "schema": _TEXT,
            "name": _TEXT,
            "how": _TEXT,
            "base_snapshot": _ID,
            "base_metadata": _TEXT,
            "candidate_snapshot": _ID,
            "published_metadata": _TEXT,
            "published_at": _TIME,
            "action": _TEXT,
            "undone_metadata": _TEXT,
            "undone_by": _TEXT,
            "manifest_hash": _TEXT,
            **_CALLER_OF_RUN,
        }
    ),
    "manifests": pa.schema(
        {"hash": _TEXT, "project": _TEXT, "run_id": _TEXT, "stored_at": _TIME, "content": _BYTES}
    ),
    "sweeps": pa.schema(
        {
            "run_id": _TEXT,
            "swept_at": _TIME,
            "what": _TEXT,
            "schema": _TEXT,
            "name": _TEXT,
            "object": _TEXT,
            "reason": _TEXT,
            "folder": _TEXT,
            "uuid": _TEXT,
            "count": _ID,
            "bytes": _ID,
            **_CALLER_OF_RUN,
        }
    ),
    "maintenance": pa.schema(
        {
            "run_id": _TEXT,
            "at": _TIME,
            "schema": _TEXT,
            "name": _TEXT,
            "action": _TEXT,
            "outcome": _TEXT,
            "reason": _TEXT,
            "score": pa.float64(),
            "seconds": pa.float64(),
            "expected_seconds": pa.float64(),
            "saved_seconds": pa.float64(),
            "files_before": _ID,
            "files_after": _ID,
            "delete_files_before": _ID,
            "delete_files_after": _ID,
            "bytes": _ID,
            "snapshots": _ID,
            "tags": pa.list_(_TEXT),
            "metadata_files": _ID,
            "base_snapshot": _ID,
            "snapshot": _ID,
            **_CALLER_OF_RUN,
        }
    ),
    "alerts": pa.schema(
        {
            "at": _TIME,
            "run_id": _TEXT,
            "branch": _TEXT,
            "route": _TEXT,
            "kind": _TEXT,
            "subject": _TEXT,
            "owners": pa.list_(_TEXT),
            "fingerprint": _TEXT,
            "outcome": _TEXT,
            "tries": _ID,
            "message": _TEXT,
        }
    ),
    "journal": pa.schema(
        {
            "publish_id": _TEXT,
            "run_id": _TEXT,
            "branch": _TEXT,
            "action": _TEXT,
            "state": _TEXT,
            "tag": _TEXT,
            "tag_max_age_ms": _ID,
            "moves": _TEXT,
            "intended_at": _TIME,
            "at": _TIME,
        }
    ),
}
"""Table -> columns. All times are UTC.

Callers:
    actor, host, catalog_user, project, command: The `Caller` of the command that wrote the row.
        `LedgerTables` adds them. A row of ``runs`` that a later command writes for a dead run has
        the host of that run, and no actor.

Runs:
    runs.tries: How often the run built again because ``main`` had moved.
    runs.rebuild_of: The run that this rebuild belongs to.
    runs.as_of, runs.pins: The moment of a replay, and the snapshot of each table that it reads.
    runs.session: A token of the settings of Spark in the profile, and of dbt's `dispatch`.
    manifest_hash: The code of a publish, or of a run on a named branch; see ``manifests``.

Nodes:
    nodes.base_metadata: The metadata file of the live table when the run first looked at it.
    nodes.problem: An invariant that did not hold.
    nodes.parents: The ids of the nodes that the node reads.
    nodes.built_on: The candidates of the branch that the node was built on, by node. The node
        itself is among them if it added rows to its own candidate.
    nodes.batches: The time ranges, ``start/end``, that a microbatch model had to build.
    nodes.write_mode: Of a model with ``wap_write_mode: auto``, the mode and the reason for it.
    nodes.refusal: The kinds of differences on ``main`` for which the publish was refused.
    reads: The state of each table that was only read; see `sparkwap.catalog.read_dependencies`.
    named: The relations that its statements have named; null if it may be any.
    seconds: The duration of a build or test.

Tests:
    tests.audited: Node id -> the candidate that the test read.
    tests.finding: The finding of an audit that does more than count rows.
    tests.inputs: A token of each variable (command line or environment) that the test uses.
    tests.given: A token of each variable that the command was given.
    tests.code, tests.sql: Tokens of the test's code and of its query.
    tests.answered: ``alone``; ``shared`` for a test that a shared statement has answered, and
        ``incremental`` if that has read only what has changed since the test passed.
    tests.basis: a digest of what the answer follows from besides the rows; null if no later
        answer can build on it.
    tests.snapshot: the snapshot that the answer was of, and tests.parent_snapshot: that of the
        other table, if the test reads two.
    tests.whole_at: when all rows of the table were last audited, and tests.increments: how often
        only changed rows were audited since.
    acceptances: People have accepted up to ``failures`` failing rows of a test, on any branch
        before ``until``, or on this branch until it is published or discarded. An acceptance is
        valid only while the nodes of ``tables`` have these tables.
    metrics: Figures that anomaly audits have measured of a candidate (named as in
        ``tests.audited``), with the expected range; see `sparkwap.audits.anomaly`. Later runs
        compare with the figures of published candidates only. ``scope`` has other inputs of the
        metric, such as the ``where`` of a test.

Publishes:
    publishes.action: ``publish`` or ``rollback``.
    publishes.undone_metadata: Of a rollback, the metadata file until then.
    publishes.undone_by: Of a rollback, the publish that the user named. It differs from
        ``publish_id`` where a forced rollback undoes later publishes, too.
    manifests.content: The bytes of `sparkwap.ledger.manifests.pack`; each hash is stored once.
    journal: The intended moves and the states of a publish, on catalogs that cannot publish in
        one transaction.

Others:
    sweeps.what: ``branch``, ``tag``, ``snapshots``, ``manifests`` or ``files``.
    maintenance: What was done with a table. ``action`` is ``compact``, ``expire`` or ``metadata``
        (``metadata_files`` of former states were deleted), ``outcome`` is ``done``, ``dropped`` (a
        writer was faster, so the rewrite was dropped) or ``waits`` (the budget was used
        up). ``expected_seconds`` of work were expected to save ``saved_seconds``
        of reading. ``bytes`` were written.
    sweeps.folder, sweeps.uuid: Those of a table that was dropped with a branch.
    alerts: Each delivery of an alert. The same trouble has the same ``fingerprint``.
"""
