"""Checks a server and its catalog, for `sparkwap doctor` and before a run's first table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
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
        "run_id": str(uuid.uuid4()),  # the run has a row of its own, when it ends
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
    connections = SparkWapConnectionManager(profile, get_context("spawn"))
    connections.project_root = str(project_dir)
    looker = _Looker(connections)
    lake = looker.look_at_catalog()
    try:
        looker.look_at_sql()
        if lake is not None and looker.facts.sql_error is None:
            looker.look_at_gate(lake)
    finally:
        if lake is not None:
            lake.close()
    return looker.facts


class _Looker:
    """Collects facts one after the other; each error is a fact, too."""

    def __init__(self, connections: SparkWapConnectionManager) -> None:
        creds, run_id = connections.credentials, str(uuid.uuid4())
        self._creds, self._connections = creds, connections
        self._probe = IsolationCheck(_server(creds), run_id, creds.catalog_name)
        self._settings = {
            **base_settings(creds.catalog_name, creds.server_side_parameters),
            BRANCH: self._probe.branch,
            RUN_ID: run_id,
        }
        self.facts = LakeFacts(
            embedded=creds.embedded,
            dbt=dbt_version,
            connect_url=creds.embedded or bool(creds.connect_url),
        )

    def _note(self, **found: Any) -> None:
        self.facts = replace(self.facts, **found)

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Let the error of the body be the fact of this name."""
        try:
            yield
        except Exception as error:
            self._note(**{name: _words(error)})

    def look_at_catalog(self) -> Lake | None:
        with self._noting("catalog_error"):
            if self._creds.embedded:
                self._connections.endpoint()
            settings = self._creds.catalog_settings(self._connections.project_root)
            lake = Lake(self._creds.catalog_name, settings)
            self._note(atomicity=_atomicity(lake), default_namespace="default" in lake.schemas())
            self._look_at_warehouse(lake)
            return lake
        return None

    def _look_at_warehouse(self, lake: Lake) -> None:
        try:
            self._note(warehouse=lake.warehouse)
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
            self._note(warehouse_error=_words(error.__cause__ or error))

    def look_at_sql(self) -> None:
        name, settings = self._creds.catalog_name, self._settings
        with self._noting("sql_error"):
            with closing(self._connections.open_sql({})) as plain:
                bare = _setting(plain, OVERWRITE_MODE)
                cache = _setting(plain, f"spark.sql.catalog.{name}.cache-enabled")
            with closing(self._connections.open_sql(settings)) as session:
                has = {key: _setting(session, key) for key in settings}
                self._note(
                    spark=str(_rows(session, "select version()")[0][0]),
                    iceberg=_iceberg(session, name),
                    dropped=_dropped(settings, has),
                    overwrite_mode=has[OVERWRITE_MODE],
                    server_overwrite_mode=bare,
                    cache=cache,
                )

    def look_at_gate(self, lake: Lake) -> None:
        probe = self._probe

        def also() -> None:
            state = lake.state(probe.table)
            head = state.refs.get(probe.branch) if state else None
            if head is not None:
                summary = lake.snapshot_summary(probe.table, head.snapshot_id)
                self._note(stamped=summary.get("wap_run") == self._settings[RUN_ID])
            # While the probe's table is there: it is cloned, and Connect has to see it.
            self._note(clones=_clone_refusal(lake, probe))
            with self._noting("connect_error"):
                self._look_at_connect()

        with (
            self._noting("probe_error"),
            closing(self._connections.open_sql(self._settings)) as session,
        ):
            self._note(probe=run_probe(lake, probe, lambda sql: _rows(session, sql), also))

    def _look_at_connect(self) -> None:
        if not self.facts.connect_url:
            return
        spark = self._connections.open_connect(self._settings)
        try:
            schema, name = self._probe.table
            # No node uses this session, so its requests need no check.
            with spark.gatekeeper.trusting():
                has = {key: str(spark.conf.get(key, "")) for key in self._settings}
                sees = spark.catalog.tableExists(f"`{self._probe.catalog}`.`{schema}`.`{name}`")
            self._note(connect_dropped=_dropped(self._settings, has), connect_sees_table=bool(sees))
        finally:
            spark.stop()


def _try_store(lake: Lake, folder: str) -> None:
    """Write, read and delete a file in a folder."""
    path = f"{folder}/doctor-{uuid.uuid4()}"
    lake.store.files.write(path, b"sparkwap doctor")
    lake.store.files.read(path)
    lake.store.files.delete(path)


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
