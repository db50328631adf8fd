"""The tables of the ledger: their columns, and what each is for."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_ID = pa.int64()
_BYTES = pa.binary()

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
            "as_of": _TEXT,
            "pins": pa.map_(_TEXT, _TEXT),
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
        }
    ),
    "manifests": pa.schema(
        {
            "hash": _TEXT,
            "project": _TEXT,
            "run_id": _TEXT,
            "stored_at": _TIME,
            "content": _BYTES,
        }
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
"""Table -> columns. All times are UTC; ``nodes.base_metadata`` is what stood at the live name when
the run first looked, ``nodes.problem`` an invariant that did not hold, ``nodes.parents`` the ids of
the nodes it reads, ``nodes.built_on`` the candidates of the branch that it was built on, by
node, itself where it has added to what was there;
``batches`` are the ranges of time, ``start/end``, that a microbatch model was to build;
``refusal`` names, by kinds, what stood on main when the catalog refused the
node's publish; ``reads`` maps tables that were only read to what they were then (see
`sparkwap.catalog.read_dependencies`); ``runs.tries`` is how often the run built anew what main
moved away under, ``rebuild_of`` the run that such a build belongs to, ``as_of`` the moment that
a replay read as of and ``pins`` the snapshot of each table that it read so; ``tests.audited`` maps
a node's id to the candidate that the test saw; ``publishes.action`` is ``publish`` or
``rollback``; of a rollback, ``undone_metadata`` is what stood there until then, and ``undone_by``
the publish that was to be undone, which is another one where a forced rollback takes later
publishes with it; ``manifest_hash`` names the code of a publish, or of a run on a branch with a
name, which ``manifests`` has once: ``content`` is what `sparkwap.ledger.manifests` packs;
``sweeps.what`` is ``branch``, ``tag``, ``snapshots``, ``manifests`` or ``files``,
``sweeps.folder`` and ``uuid`` are those of a table that went with a branch. ``tests.finding`` is
what an audit
says of what it found, where it does not only count rows, ``tests.inputs`` has a token of the value
of each variable of the command line or the environment that the test uses, ``tests.given`` of all
that the command was given, ``code`` and ``sql`` are tokens of the test's code and of its query, and
``seconds`` is what a build or test took. ``tests.answered`` is ``alone``, or ``shared`` for a test
that a statement shared with other tests has answered.
``acceptances`` is what people have found right of what a test rejected, up to ``failures`` failing
rows: on any branch before ``until``, or on that branch until it is published or discarded, and only
where the nodes of ``tables`` are these tables.
``metrics`` has what the anomaly audits have measured of a candidate, named as in ``tests.audited``,
with what was expected of it (see `sparkwap.audits.anomaly`); ``metrics.scope`` is what else a
metric depends on, such as a test's ``where``. Only those of published candidates are compared with.
``alerts`` is what was sent to which route, ``alerts.fingerprint`` the same for the same trouble.
``journal`` is kept on catalogs that cannot publish in one transaction: a publish as it was
intended, and what came of it."""
