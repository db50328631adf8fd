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
            "code": _TEXT,
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
"""Table -> columns, which docs/ledger.md describes. All times are UTC.

`LedgerTables` adds the columns of the caller.
"""
