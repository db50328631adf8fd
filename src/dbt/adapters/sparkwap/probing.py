"""Checks a server and its catalog, for `sparkwap doctor` and before a run's first table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from dbt.version import __version__ as dbt_version

from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from dbt.adapters.sparkwap.sessions import BRANCH, OVERWRITE_MODE, RUN_ID, base_settings
from dbt.adapters.sparkwap.spark_errors import server_message, short_error
from sparkwap.catalog import LedgerRows
from sparkwap.catalog.backend import sequential
from sparkwap.catalog.pointers import CannotShare
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA, side_schema
from sparkwap.gate.doctor import Atomicity, LakeFacts
from sparkwap.gate.isolation_check import DAYS, IsolationCheck, problem, refusal
from sparkwap.publish.lake import Lake


def require_safe(
    lake: Lake,
    connections: SparkWapConnectionManager,
    settings: Mapping[str, str],
    run_id: str,
) -> None:
    """Refuse a server or catalog that writes rows of an audit branch to ``main``.

    Checks each server again after ``DAYS`` days; the ledger has the result.
    """
    creds = connections.credentials
    probe = IsolationCheck(_server(creds), run_id, creds.catalog_name)
    since = datetime.now(UTC) - timedelta(days=DAYS)
    known = lake.ledger.runs(probe.branch, limit=1)
    if known and known[0]["outcome"] == "safe" and known[0]["started_at"] >= since:
        return
    with closing(connections.open_sql({**settings, BRANCH: probe.branch})) as session:
        found = run_probe(lake, probe, lambda sql: _rows(session, sql))
    if found:
        raise CatalogError(refusal(probe, found))
    now = datetime.now(UTC)
    row = {
        "run_id": run_id,
        "branch": probe.branch,
        "command": "probe",
        "started_at": now,
        "ended_at": now,
        "outcome": "safe",
        "message": probe.server,
    }
    lake.ledger.append(LedgerRows("runs", [row]))


def run_probe(
    lake: Lake,
    probe: IsolationCheck,
    execute: Callable[[str], Any],
    before_drop: Callable[[], None] = lambda: None,
) -> str:
    """Run the probe, drop its table, and return the problem; empty if there is none."""
    lake.store.backend.require_writer()
    lake.ensure_schema(LEDGER_SCHEMA)
    try:
        for statement in probe.statements:
            execute(statement)
        found = problem(probe, lake.state(probe.table)) or ""
        before_drop()
        return found
    finally:
        with suppress(Exception):
            execute(f"drop table if exists `{probe.catalog}`.`{LEDGER_SCHEMA}`.`{probe.table[1]}`")


def look(profile: Any, project_dir: Path) -> LakeFacts:
    """Collect the facts about the server and the catalog of a profile (dbt's object)."""
    creds: SparkWapCredentials = profile.credentials
    connections = SparkWapConnectionManager(profile, get_context("spawn"))
    connections.project_root = str(project_dir)
    facts = LakeFacts(
        embedded=creds.embedded,
        dbt=dbt_version,
        connect_url=creds.embedded or bool(creds.connect_url),
    )
    lake, facts = _look_at_catalog(creds, connections, str(project_dir), facts)
    run_id = str(uuid.uuid4())
    probe = IsolationCheck(_server(creds), run_id, creds.catalog_name)
    settings = {
        **base_settings(creds.catalog_name, creds.server_side_parameters),
        BRANCH: probe.branch,
        RUN_ID: run_id,
    }
    try:
        facts = _look_at_sql(connections, creds, settings, facts)
        if lake is not None and facts.sql_error is None:
            facts = _look_at_gate(lake, connections, probe, settings, facts)
    finally:
        if lake is not None:
            lake.close()
    return facts


def _look_at_catalog(
    creds: SparkWapCredentials,
    connections: SparkWapConnectionManager,
    project_root: str,
    facts: LakeFacts,
) -> tuple[Lake | None, LakeFacts]:
    try:
        if creds.embedded:
            connections.endpoint()
        lake = Lake(creds.catalog_name, creds.catalog_settings(project_root))
        facts = replace(
            facts,
            atomicity=_atomicity(lake),
            default_namespace="default" in lake.schemas(),
        )
    except Exception as error:
        return None, replace(facts, catalog_error=_words(error))
    try:
        facts = replace(facts, warehouse=lake.warehouse)
        try:
            _try_store(lake, f"{lake.warehouse}/{LEDGER_SCHEMA}")
        except Exception:
            if lake.store.files.vended is None:
                raise
            # A catalog that vends keys does so for folders of tables.
            lake.ledger.ensure_all()
            runs = lake.state((LEDGER_SCHEMA, "runs"))
            if runs is None or lake.store.files.reach_all:
                raise
            _try_store(lake, runs.location)
    except Exception as error:
        # The cause alone: the advice of a failed write is for builds.
        facts = replace(facts, warehouse_error=_words(error.__cause__ or error))
    return lake, facts


def _try_store(lake: Lake, folder: str) -> None:
    """Write, read and delete a file in a folder."""
    path = f"{folder}/doctor-{uuid.uuid4()}"
    lake.store.files.write(path, b"sparkwap doctor")
    lake.store.files.read(path)
    lake.store.files.delete(path)


def _look_at_sql(
    connections: SparkWapConnectionManager,
    creds: SparkWapCredentials,
    settings: Mapping[str, str],
    facts: LakeFacts,
) -> LakeFacts:
    try:
        with closing(connections.open_sql({})) as plain:
            bare = _setting(plain, OVERWRITE_MODE)
            cache = _setting(plain, f"spark.sql.catalog.{creds.catalog_name}.cache-enabled")
        with closing(connections.open_sql(settings)) as session:
            has = {key: _setting(session, key) for key in settings}
            return replace(
                facts,
                spark=str(_rows(session, "select version()")[0][0]),
                iceberg=_iceberg(session, creds.catalog_name),
                dropped=_dropped(settings, has),
                overwrite_mode=has[OVERWRITE_MODE],
                server_overwrite_mode=bare,
                cache=cache,
            )
    except Exception as error:
        return replace(facts, sql_error=_words(error))


def _look_at_gate(
    lake: Lake,
    connections: SparkWapConnectionManager,
    probe: IsolationCheck,
    settings: Mapping[str, str],
    facts: LakeFacts,
) -> LakeFacts:
    seen: list[LakeFacts] = [facts]

    def also() -> None:
        state = lake.state(probe.table)
        head = state.refs.get(probe.branch) if state else None
        if head is not None:
            summary = lake.snapshot_summary(probe.table, head.snapshot_id)
            seen[0] = replace(seen[0], stamped=summary.get("wap_run") == settings[RUN_ID])
        # While the probe's table is there: it is cloned, and Connect has to see it.
        seen[0] = replace(seen[0], clones=_clone_refusal(lake, probe))
        seen[0] = _look_at_connect(connections, probe, settings, seen[0])

    try:
        with closing(connections.open_sql(settings)) as session:
            found = run_probe(lake, probe, lambda sql: _rows(session, sql), also)
    except Exception as error:
        return replace(seen[0], probe_error=_words(error))
    return replace(seen[0], probe=found)


def _clone_refusal(lake: Lake, probe: IsolationCheck) -> str | None:
    """Return why the catalog refuses a clone of the probe's table; None if it could not be tried.

    A catalog to which sparkwap writes metadata files itself takes any.
    """
    if lake.store.backend.takes_files:
        return None
    side = side_schema(LEDGER_SCHEMA, probe.branch)
    try:
        lake.branches.clone(probe.table, side)
        return ""
    except CatalogError as error:
        refusal = error.__cause__
        return refusal.reason if isinstance(refusal, CannotShare) else None
    finally:
        with suppress(CatalogError):
            lake.drop_schema(side, purge=True)


def _look_at_connect(
    connections: SparkWapConnectionManager,
    probe: IsolationCheck,
    settings: Mapping[str, str],
    facts: LakeFacts,
) -> LakeFacts:
    if not facts.connect_url:
        return facts
    try:
        spark = connections.open_connect(settings)
        try:
            schema, name = probe.table
            # No node uses this session, so its requests need no check.
            with spark.gatekeeper.trusting():
                has = {key: str(spark.conf.get(key, "")) for key in settings}
                sees = spark.catalog.tableExists(f"`{probe.catalog}`.`{schema}`.`{name}`")
            return replace(
                facts, connect_dropped=_dropped(settings, has), connect_sees_table=bool(sees)
            )
        finally:
            spark.stop()
    except Exception as error:
        return replace(facts, connect_error=_words(error))


def _server(creds: SparkWapCredentials) -> str:
    return f"the lake {creds.lake}" if creds.embedded else f"the server {creds.host}:{creds.port}"


def _atomicity(lake: Lake) -> Atomicity:
    rows = lake.store.backend
    if rows.atomic:
        return "transaction"
    return "journal, together" if sequential(rows).together else "journal, one by one"


def _iceberg(session: Any, catalog: str) -> str | None:
    try:
        return str(_rows(session, f"select `{catalog}`.system.iceberg_version()")[0][0])
    except Exception:
        return None


def _dropped(wanted: Mapping[str, str], has: Mapping[str, str]) -> dict[str, str]:
    return {k: has[k] for k, value in wanted.items() if has[k].lower() != str(value).lower()}


def _setting(session: Any, key: str) -> str:
    """Return a setting of the session; empty if it is not set."""
    value = str(_rows(session, f"set `{key}`")[0][1])
    return "" if value == "<undefined>" else value


def _rows(session: Any, sql: str) -> list[Any]:
    cursor = session.cursor()
    cursor.execute(sql)
    return list(cursor.fetchall() or [])


def _words(error: BaseException) -> str:
    # The text of dbt's own errors begins with a line for their kind.
    message = server_message(error) or getattr(error, "msg", None) or error
    message = short_error(str(message)).strip()
    return (message.splitlines() or [type(error).__name__])[0].rstrip(".")
