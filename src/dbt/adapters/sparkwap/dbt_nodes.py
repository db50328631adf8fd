"""Translates single nodes, tests and results of dbt into the gate's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from sparkwap.gate.thresholds import cannot_fail
from sparkwap.runs.batches import as_utc, merged

if TYPE_CHECKING:
    from sparkwap.maintenance.rules import Rules
    from sparkwap.runs.batches import Range


BUILT_TYPES = frozenset({"model", "seed", "snapshot"})
_ALWAYS = 36_500
_THRESHOLDS = {"warn_if": "!= 0", "error_if": "!= 0", "fail_calc": "count(*)"}


def calls(manifest: Any) -> dict[str, list[str]]:
    """Return the ids of the macros that each node calls, as far as dbt knows now."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {key: list(getattr(node.depends_on, "macros", ())) for key, node in nodes.items()}


def tables(manifest: Any) -> set[tuple[str, str]]:
    """Return schema and name of all tables and views that a manifest's project builds."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {(node.schema, node.alias) for node in nodes.values() if has_table(node)}


def has_table(node: Any) -> bool:
    """Return whether dbt builds a table or view of a node."""
    return str(node.resource_type) in BUILT_TYPES and materialized(node) != "ephemeral"


def table_of(node: Any) -> tuple[str, str]:
    """Return schema and name of a node or source."""
    return node.schema, getattr(node, "alias", None) or node.identifier


def meta_of(entry: Any) -> dict[str, Any]:
    """Return the ``meta`` of a node or column, from its config and from dbt's older place."""
    config = getattr(entry, "config", None)
    return {**(getattr(entry, "meta", None) or {}), **(getattr(config, "meta", None) or {})}


def stored(manifest: Any) -> list[Any]:
    """Return the nodes, tests and sources of a manifest that may have a table in the lake."""
    found = (*manifest.nodes.values(), *getattr(manifest, "sources", {}).values())
    return [one for one in found if str(one.resource_type) in (*BUILT_TYPES, "source", "test")]


def maintenance_rules(manifest: Any) -> dict[tuple[str, str], Rules]:
    """Return how each table of a project is maintained: ``wap_maintain`` in its config or `meta`.

    A table keeps all of its history if a node reads its changes, see `with_history`.

    Raises:
        ConfigError: A rule is not legal.
    """
    from sparkwap.maintenance.rules import Rules

    found, kept = {}, with_history(manifest)
    for node in stored(manifest):
        kind, name = str(node.resource_type), table_of(node)
        given = meta_of(node).get("wap_maintain")
        # Not `get`, which warns of a key that is in `meta`.
        if kind in BUILT_TYPES and "wap_maintain" in node.config:
            given = node.config["wap_maintain"]
        if kind != "test":
            rules = Rules.of(given, ".".join(name))
            found[name] = replace(rules, keep_days=_ALWAYS) if name in kept else rules
    return found


def with_history(manifest: Any) -> set[tuple[str, str]]:
    """Return the tables of whose snapshots the macro `scd2_from_changes` makes a history."""
    macros = getattr(manifest, "macros", {})
    calling = {name for name in macros if name.endswith(".scd2_from_changes")}
    found: set[str] = set()
    while calling > found:
        found = set(calling)
        calling |= {n for n, one in macros.items() if found.intersection(one.depends_on.macros)}
    read = {
        parent
        for node in manifest.nodes.values()
        if calling.intersection(getattr(node.depends_on, "macros", ()))
        for parent in getattr(node.depends_on, "nodes", ())
    }
    return {table_of(node) for node in stored(manifest) if node.unique_id in read}


def source_tables(manifest: Any) -> set[tuple[str, str]]:
    """Return schema and name of all sources of a manifest's project."""
    sources: Mapping[str, Any] = getattr(manifest, "sources", {})
    return {(source.schema, source.identifier) for source in sources.values()}


def severity_of(test: Any) -> str:
    """Return a test's severity and the thresholds that are not dbt's: `warn, error_if > 10`."""
    given = _thresholds(test.config)
    changed = [f"{name} {value}" for name, value in given.items() if value != _THRESHOLDS[name]]
    return ", ".join([str(test.config.severity).lower(), *changed])


def batches_of(result: Any) -> tuple[Range, ...]:
    """Return the batches of a microbatch model, successful or not; empty for other nodes."""
    found = getattr(result, "batch_results", None)
    batches = [*found.successful, *found.failed] if found else []
    # dbt counts in UTC, but its results are read without a time zone.
    return merged((as_utc(start), as_utc(end)) for start, end in batches)


def query_of(test: Any) -> str | None:
    """Return the query of a data test, with the limit that dbt appends."""
    compiled = getattr(test, "compiled_code", None)
    if str(test.resource_type) != "test" or compiled is None:
        return None
    limit = getattr(test.config, "limit", None)
    return str(compiled) if limit is None else f"{compiled}\nlimit {limit}"


_by_thresholds = cache(cannot_fail)  # Most tests have the same ones.


def why_cannot_fail(config: Any) -> str | None:
    """Return why a test of this config never fails; None if it can fail."""
    given, where = _thresholds(config), getattr(config, "where", None)
    # A condition on rows may follow the clock, so its answer holds only now.
    judge = cannot_fail if where else _by_thresholds
    return judge(
        severity=str(getattr(config, "severity", "error")),
        error_if=given["error_if"],
        fail_calc=given["fail_calc"],
        limit=getattr(config, "limit", None),
        where=where,
    )


def _thresholds(config: Any) -> dict[str, str]:
    return {name: str(getattr(config, name, usual)) for name, usual in _THRESHOLDS.items()}


def short_name(node_id: str) -> str:
    """Return the name of a node for messages: ``orders``, ``source:raw.events``."""
    kind, _, name = node_id.split(".", 2)
    return f"source:{name}" if kind == "source" else name


def why_not_replayable(node: Any) -> str | None:
    """Return why a node's rows do not depend only on its inputs; None if they do."""
    kind = materialized(node)
    if kind == "snapshot":
        return "a snapshot depends on the times of its earlier runs"
    if kind == "incremental" and getattr(node.config, "full_refresh", None) is False:
        return "full_refresh: false prevents a full build"
    if kind == "incremental" and getattr(node.config, "incremental_strategy", None) == "microbatch":
        return "dbt divides a microbatch model into batches by today's date"
    return None


def materialized(node: Any) -> str:
    return str(getattr(node.config, "materialized", ""))


def tested_by(unit_test: Any) -> str:
    # dbt does the same: a unit test depends only on the tested node.
    return str(unit_test.depends_on.nodes[0])


def built_by(node: Any) -> list[str]:
    """Return the node itself if it is built; of a test, the built nodes that it names."""
    ids = [node.unique_id] if str(node.resource_type) in BUILT_TYPES else depends_on(node)
    return [one for one in ids if one.partition(".")[0] in BUILT_TYPES]


def depends_on(node: Any) -> list[str]:
    # A seed's dependencies have no list of nodes.
    return list(getattr(node.depends_on, "nodes", []))
