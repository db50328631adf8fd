"""Decides whether a build without unread files and messages may publish another state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.core.dbt_cli import DbtCall, LakePlace
from sparkwap.gate.settings import of_one_call
from sparkwap.ledger.code import BUILT, INTERNAL
from sparkwap.ledger.manifests import pack
from sparkwap.plan.decide import REBUILDS, asked_again

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.catalog.model import TableState
    from sparkwap.ledger.records import LedgerPublish

_INPUTS = re.compile(
    r"\b(?:(?:env_)?var|run_query|load_result|builtins(?!\s*\.\s*(?:ref|source|config)\b))\b"
)
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_DBT_OPTIONS = re.compile(
    r"DBT_(?:ENGINE_)?(?:FULL_REFRESH|EMPTY|SAMPLE|EVENT_TIME_\w+|(?:EXCLUDE_)?RESOURCE_TYPES"
    r"|STORE_FAILURES|(?:DEFER|FAVOR|ARTIFACT)?_?STATE\w*|DEFER\w*|INDIRECT_SELECTION|WARN_ERROR\w*)"
)

_OFF = frozenset({"", "0", "f", "false", "n", "no", "off"})


def asks_for_more(call: DbtCall, environment: Mapping[str, str]) -> bool:
    """Return whether arguments, variables or the environment change what or how to build."""
    return bool(
        call.build
        or call.variables.keys() - {"landing_until"}
        or of_one_call(environment)
        or any(_DBT_OPTIONS.fullmatch(name) for name in environment)
    )


def asks_again(call: DbtCall, environment: Mapping[str, str]) -> str | None:
    """Return what asks for a build of nodes that have not changed; None if nothing does."""
    given = {argument.partition("=")[0] for argument in call.build}
    for flag in REBUILDS:
        option, name = "--" + flag.replace("_", "-"), flag.upper()
        values = [environment.get(f"DBT_{engine}{name}", "") for engine in ("", "ENGINE_")]
        if option in given or any(value.lower() not in _OFF for value in values):
            return option
    return "--full-refresh" if "-f" in given else asked_again(call.variables, environment)


def why_build(call: DbtCall, place: LakePlace, manifest: Mapping[str, Any]) -> str | None:
    """Return why a build may publish another state of the lake; None if it cannot."""
    # Imported here, because it imports PyIceberg, which `--help` does not need.
    from sparkwap.publish.lake import Lake

    if not place.exists:
        return "there is no lake yet"
    lake = Lake(place.name, place.properties)
    publishes, project = lake.ledger.publishes(), manifest["metadata"]["project_name"]
    last_run = next(
        (r for r in lake.ledger.runs() if (r["project"], r["target"]) == (project, place.target)),
        None,
    )
    beside = [call.project_dir / "dbt_project.yml", call.project_dir / "vars.yml"]
    files = {
        file.name: datetime.fromtimestamp(file.stat().st_mtime, UTC)
        for file in (*beside, call.profiles_dir / "profiles.yml")
        if file.exists()
    }
    states = lake.states(built_tables(manifest))
    now = datetime.now(UTC)
    return reason_to_build(manifest, publishes, last_run, states, files, now, place.session)


def reason_to_build(
    manifest: Mapping[str, Any],
    publishes: Sequence[LedgerPublish],
    last_run: Mapping[str, Any] | None,
    states: Mapping[Identifier, TableState],
    files: Mapping[str, datetime],
    now: datetime,
    session: str | None,
) -> str | None:
    """Return the reason why a build may publish another state; None if it cannot.

    It cannot if the last publish of the project's tables has published all of them, with the same
    code, today, and nothing was undone, written or rejected since. So values that models take from
    the clock are at most a day old.

    Args:
        publishes: All publishes of the lake, newest first.
        last_run: The newest row of the ledger's ``runs`` for this project and target.
        states: The present states of the tables and views.
        files: Change times of the files that are not in dbt's manifest: variables, flags, and
            settings of the gate.
        session: A token of the profile's settings of Spark, and of dbt's ``dispatch``.
    """
    if why := _unknown_inputs(manifest):
        return why
    tables = built_tables(manifest)
    last = next((p for p in publishes if tables & {e.identifier for e in p.entries}), None)
    if last is None or not tables <= {entry.identifier for entry in last.entries}:
        return "the last publish does not have all tables of the project"
    if len(last.left) < len(last.entries):
        return "the last publish was rolled back"
    if last.manifest_hash != pack(manifest).hash:
        return "the code has changed since the last publish"
    if last_run is None or last_run["publish_id"] != last.publish_id:
        return "a later run has not published"
    if last_run.get("session") != session:
        return "settings of Spark in the profile, or dispatch, have changed since the last publish"
    for entry in last.entries:
        state = states.get(entry.identifier)
        now_there = state and (state.main or state.metadata_location)
        if now_there != (entry.candidate or entry.published_metadata_location):
            return f"{'.'.join(entry.identifier)} has changed since the last publish"
    for name, changed in files.items():
        if changed > last.published_at:
            return f"{name} is newer than the last publish"
    if last.published_at.date() != now.date():
        return "the last publish was not today (UTC)"
    return None


def built_tables(manifest: Mapping[str, Any]) -> set[Identifier]:
    """Return schema and name of all tables and views that a project builds."""
    return {(node["schema"], node["alias"]) for node in _enabled(manifest)
            if node["resource_type"] in BUILT
            and node["config"].get("materialized") != "ephemeral"}  # fmt: skip


def _unknown_inputs(manifest: Mapping[str, Any]) -> str | None:
    """Return an input that is neither code nor a landing file; None if there is none."""
    for node in _enabled(manifest):
        parents = (node.get("depends_on") or {}).get("nodes") or ()
        if any(parent.startswith("source.") for parent in parents):
            return f"{node['name']} reads a source that other programs fill"
        if (node.get("checksum") or {}).get("name") == "path":
            return f"{node['name']} is too large for dbt to detect changes"
        hooks = [node["config"].get(f"{when}-hook") for when in ("pre", "post")]
        if _has_inputs(f"{node.get('raw_code') or ''} {hooks}"):
            return f"{node['name']} uses variables or queries"
    for macro in manifest.get("macros", {}).values():
        # Those of dbt and the adapter use variables too, but only the gate's, in dbt_project.yml.
        if macro["package_name"] not in INTERNAL and _has_inputs(macro["macro_sql"]):
            return f"the macro {macro['name']} uses variables or queries"
    return None


def _has_inputs(text: str) -> bool:
    """Return whether Jinja may read variables, or rows by a query while dbt compiles."""
    return any(map(_INPUTS.search, _JINJA.findall(_COMMENT.sub("", text))))


def _enabled(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        node
        for node in manifest["nodes"].values()
        if node["resource_type"] != "analysis" and node["config"].get("enabled", True)
    ]
