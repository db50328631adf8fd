"""Gathers the facts of the metrics from ledger, catalog, project and landing folders."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sparkwap.catalog import lease as leasing
from sparkwap.core.names import LEDGER_SCHEMA, split_side_schema
from sparkwap.core.redaction import redact
from sparkwap.landing.raw_models import (
    bad_rows,
    has_entry,
    known_files,
    raw_models,
    unread_files,
    unread_messages,
)
from sparkwap.ledger.tables import ex
from sparkwap.metrics.decide import BranchFacts, CatalogFacts, Facts, RawModelFacts, Row, Runs
from sparkwap.publish.lake import Lake

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier, OpenBranch
    from sparkwap.core.dbt_cli import DbtCall, LakePlace

R = TypeVar("R")

_AT_ONCE = 8
"""Raw models that are looked at together: that a broker is down takes 15 seconds to notice."""


def gather(call: DbtCall) -> Facts:
    """Return the facts of a project and its lake; what cannot be read is in ``faults``.

    Raises:
        ConfigError: The profile cannot be read, or is for another adapter.
    """
    from dbt.config.project import load_raw_project

    began, place = time.monotonic(), call.lake()
    parts, no_rows = Parts(), list[dict[str, Any]]()
    exists = place.exists
    lake = parts.read("lake", lambda: Lake(place.name, dict(place.properties)) if exists else None)
    with closing(lake) if lake else nullcontext():
        runs = parts.of_lake("runs", lake, lambda at: at.ledger.rows("runs"), no_rows)
        publishes = parts.of_lake("publishes", lake, _publishes, no_rows)
        verdicts = parts.of_lake("verdicts", lake, _verdicts, no_rows)
        tests = parts.of_lake("tests", lake, lambda at: _tests(at, runs or ()), no_rows)
        catalog = parts.of_lake("branches", lake, _catalog, CatalogFacts())
    models = parts.read("project", lambda: _landing(call, place))
    faults = {f"raw model {one.model}": "; ".join(one.faults) for one in models or ()}
    return Facts(
        project=str(load_raw_project(str(call.project_dir))["name"]),
        target=place.target,
        at=datetime.now(UTC),
        seconds=time.monotonic() - began,
        lake_exists=exists,
        runs=runs,
        publishes=publishes,
        verdicts=verdicts,
        tests=tests,
        catalog=catalog,
        raw_models=models,
        faults=parts.faults | {name: fault for name, fault in faults.items() if fault},
    )


class Parts:
    """Reads parts of the facts; one that cannot be read, see ``faults``, hides no other part."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}

    def read(self, name: str, read: Callable[[], R]) -> R | None:
        """Return what a function reads; None if it fails."""
        try:
            return read()
        except Exception as error:
            self.faults[name] = redact(str(error) or type(error).__name__)
            return None

    def of_lake(
        self, name: str, lake: Lake | None, read: Callable[[Lake], R], empty: R
    ) -> R | None:
        """Return what a function reads of a lake; ``empty`` if there is no lake yet."""
        if "lake" in self.faults:
            self.faults[name] = self.faults["lake"]
            return None
        return empty if lake is None else self.read(name, lambda: read(lake))


def _publishes(lake: Lake) -> list[dict[str, Any]]:
    columns = ("publish_id", "run_id", "branch", "schema", "name", "published_at", "action")
    return lake.ledger.read("publishes", columns=columns)


def _verdicts(lake: Lake) -> list[dict[str, Any]]:
    columns = ("run_id", "branch", "resource_type", "schema", "name", "verdict", "built_at")
    return lake.ledger.read("nodes", ex.In("verdict", {"held", "rejected"}), columns)


def _tests(lake: Lake, runs: Sequence[Row]) -> list[dict[str, Any]]:
    columns = ("run_id", "test_id", "status", "executed_at")
    last = set(Runs(runs).of_last)
    return lake.ledger.read("tests", ex.In("run_id", last), columns) if last else []


def _catalog(lake: Lake) -> CatalogFacts:
    sides = lake.side_schemas()
    busy = {lease.branch for lease in leasing.living(lake.leases)}
    tables = {row.identifier for row in lake.store.backend.all()}
    return CatalogFacts(
        tuple(_branch(lake, branch, busy) for branch in lake.branches.all()),
        {table for table in tables if table[0] not in {*sides, LEDGER_SCHEMA}},
        len(lake.unreadable()),
    )


def _branch(lake: Lake, branch: OpenBranch, busy: set[str]) -> BranchFacts:
    nodes = lake.ledger.branch_history(branch.branch).nodes
    created = [datetime.fromtimestamp(table.created_ms / 1000, UTC) for table in branch.tables]
    since = min([*created, *(row["built_at"] for row in nodes)], default=None)
    return BranchFacts(branch.branch, _tables(branch), nodes, since, branch.branch in busy)


def _tables(branch: OpenBranch) -> tuple[Identifier, ...]:
    beside = (
        (split_side_schema(side.identifier[0], branch.branch) or "", side.identifier[1])
        for side in branch.side
    )
    return (*(table.identifier for table in branch.tables), *beside)


def _landing(call: DbtCall, place: LakePlace) -> list[RawModelFacts]:
    # dbt prints what is wrong with a project on standard output, where the metrics go.
    with redirect_stdout(sys.stderr):
        manifest = call.manifest("sparkwap metrics")
    nodes = [node for node in manifest["nodes"].values() if has_entry(node)]
    nodes.sort(key=lambda node: str(node["name"]))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda node: _raw_model(node, call, place), nodes))
    # Versions of a model, and models of two packages, may have one name.
    times = Counter(one.model for one in found)
    return [
        one if times[one.model] == 1 else replace(one, model=f"{node['schema']}.{node['alias']}")
        for one, node in zip(found, nodes, strict=True)
    ]


def _raw_model(node: Mapping[str, Any], call: DbtCall, place: LakePlace) -> RawModelFacts:
    parts = Parts()
    # One invalid entry does not hide the other models.
    found = parts.read("entry", lambda: raw_models({"nodes": {"": node}}, call.project_dir))
    if not found:
        return RawModelFacts(str(node["name"]), faults=tuple(parts.faults.values()))
    (model,), target = found, call.project_dir / call.target_path
    messages, files = None, None
    if model.entry.topic:
        messages = parts.read("topic", lambda: unread_messages(place, model))
    else:
        files = parts.read(
            "files", lambda: unread_files(model, known_files(place, [model]), target)
        )
    bad = parts.read("quarantine", lambda: bad_rows(place, model))
    return RawModelFacts(
        model.name,
        unread_files=None if files is None else len(files),
        oldest=min((stamp.changed / 1e9 for stamp in (files or {}).values()), default=None),
        unread_messages=messages,
        quarantined=None if bad is None else len(bad),
        faults=tuple(dict.fromkeys(parts.faults.values())),
    )
