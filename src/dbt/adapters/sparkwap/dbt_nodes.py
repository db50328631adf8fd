"""What dbt says of one node, test or result, in the terms of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkwap.gate.thresholds import cannot_fail
from sparkwap.runs.batches import as_utc, merged

if TYPE_CHECKING:
    from sparkwap.runs.batches import Range


BUILT_TYPES = frozenset({"model", "seed", "snapshot"})


_THRESHOLDS = {"warn_if": "!= 0", "error_if": "!= 0", "fail_calc": "count(*)"}


def calls(manifest: Any) -> dict[str, list[str]]:
    """Node id -> ids of the macros that it calls, as far as dbt knows by now; None has none."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {key: list(getattr(node.depends_on, "macros", ())) for key, node in nodes.items()}


def tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all that a manifest's project builds, as tables or views."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {
        (node.schema, node.alias)
        for node in nodes.values()
        if str(node.resource_type) in BUILT_TYPES and materialized(node) != "ephemeral"
    }


def source_tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all sources of a manifest's project."""
    sources: Mapping[str, Any] = getattr(manifest, "sources", {})
    return {(source.schema, source.identifier) for source in sources.values()}


def severity_of(test: Any) -> str:
    """A test's severity, with the thresholds that are not dbt's own: `warn, error_if > 10`."""
    given = {name: str(getattr(test.config, name, usual)) for name, usual in _THRESHOLDS.items()}
    changed = [f"{name} {given[name]}" for name, usual in _THRESHOLDS.items()
               if given[name] != usual]  # fmt: skip
    return ", ".join([str(test.config.severity).lower(), *changed])


def batches_of(result: Any) -> tuple[Range, ...]:
    """What a microbatch model was to build, whether it could or not; nothing for other nodes."""
    found = getattr(result, "batch_results", None)
    batches = [*found.successful, *found.failed] if found else []
    # dbt counts in UTC, and reads a record of its own without saying so.
    return merged((as_utc(start), as_utc(end)) for start, end in batches)


def query_of(test: Any) -> str | None:
    """What a data test has asked the lake, with the limit that dbt puts behind it."""
    compiled = getattr(test, "compiled_code", None)
    if str(test.resource_type) != "test" or compiled is None:
        return None
    limit = getattr(test.config, "limit", None)
    return str(compiled) if limit is None else f"{compiled}\nlimit {limit}"


def why_cannot_fail(config: Any) -> str | None:
    given = {name: str(getattr(config, name, usual)) for name, usual in _THRESHOLDS.items()}
    return cannot_fail(
        severity=str(getattr(config, "severity", "error")),
        error_if=given["error_if"],
        fail_calc=given["fail_calc"],
        limit=getattr(config, "limit", None),
        where=getattr(config, "where", None),
    )


def short_name(node_id: str) -> str:
    """A node as its reader calls it: ``orders``, ``source:raw.events``."""
    kind, _, name = node_id.split(".", 2)
    return f"source:{name}" if kind == "source" else name


def why_not_replayable(node: Any) -> str | None:
    """Why a node's rows are no function of what it reads; None if they are."""
    kind = materialized(node)
    if kind == "snapshot":
        return "a snapshot is the history of what it saw, run by run"
    if kind == "incremental" and getattr(node.config, "full_refresh", None) is False:
        return "with full_refresh: false it is never built as a whole"
    if kind == "incremental" and getattr(node.config, "incremental_strategy", None) == "microbatch":
        return "dbt cuts a microbatch model into batches by today's date"
    return None


def materialized(node: Any) -> str:
    return str(getattr(node.config, "materialized", ""))


def tested_by(unit_test: Any) -> str:
    # dbt looks it up in the same way: a unit test depends on what it tests, and on nothing else.
    return str(unit_test.depends_on.nodes[0])


def depends_on(node: Any) -> list[str]:
    # Seeds have macros to depend on, but no nodes.
    return list(getattr(node.depends_on, "nodes", []))
