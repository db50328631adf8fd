"""Passes dbt's manifest, results and some rows of failed tests to the alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES
from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.alerts import events
from sparkwap.alerts.events import Failure, Quarantined
from sparkwap.alerts.model import Event, FailedRows
from sparkwap.alerts.project import Project
from sparkwap.runs.next_steps import next_steps

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.runs.run import Run
    from sparkwap.runs.types import RunEnd

_FAILED = frozenset({"fail", "error", "runtime error"})


class RunAlerts:
    """The alerts of one run, which never make the run fail."""

    def __init__(self, command: DbtCommand, run: Run) -> None:
        self._command = command
        self._run = run
        self._settings = run.settings.alerts
        self._samples: dict[str, FailedRows] = {}

    def keep_sample(self, test_id: str, sql: str, result: Any) -> None:
        """Query some of the rows that fail a test, while the session reads the run's branch."""
        count = self._settings.sample_rows
        try:
            if not count or not _should_error(result):
                return
            query = f"select * from (\n{sql}\n) as wap_sample limit {count}"
            _, table = self._command.connections.execute(query, fetch=True)
            rows = [tuple(row) for row in table.rows]
            self._samples[test_id] = project(self._command).sample(
                test_id, list(table.column_names), rows
            )
        except Exception as error:
            logger.debug(f"no sample of {test_id}: {type(error).__name__}")

    def closed(
        self, closing: RunEnd, manifest: ProjectManifest, results: Iterable[Any]
    ) -> list[str]:
        """Send the alerts of a closed run; returns the lines to print."""

        def found(known: Project) -> list[Event]:
            at, run_id = datetime.now(UTC), self._run.run_id
            run = events.of_run(
                closing,
                _failures(manifest, results),
                run_id=run_id,
                branch=self._run.branch,
                at=at,
                project=known,
                ways=next_steps(closing, self._run.branch),
                samples=self._samples,
            )
            threshold = self._settings.quarantine
            waiting = self._quarantined(closing) if threshold is not None else []
            return [
                *run,
                *events.of_quarantine(waiting, threshold, run_id=run_id, at=at, project=known),
            ]

        return _send(self._command, found)

    def broke_down(self, message: str, node_ids: Sequence[str]) -> None:
        """Send the alert of a run that the gate could not close."""

        def found(known: Project) -> list[Event]:
            return [
                events.broken_down(
                    message,
                    node_ids,
                    subject=f"dbt {self._run.invocation.command} of {self._run.invocation.project}",
                    run_id=self._run.run_id,
                    branch=self._run.branch,
                    at=datetime.now(UTC),
                    project=known,
                )
            ]

        for line in _send(self._command, found):
            logger.info(line)

    def _quarantined(self, closing: RunEnd) -> list[Quarantined]:
        """Return the quarantines of the raw tables that this run has published."""
        if closing.refused is not None:
            return []
        # Imported late, because it loads PyArrow and most runs do not need it.
        from sparkwap.alerts.look import quarantined

        manifest: Any = self._command.dbt_manifest()
        published = {
            key: node.name
            for node in closing.nodes
            if (key := node.node_id) in closing.decision.publish
            and (manifest.nodes[key].config.meta or {}).get("landing")
        }
        return quarantined(self._run.lake.catalog, published)


def rolled_back(command: DbtCommand, publishes: Sequence[LedgerPublish]) -> list[str]:
    """Send the alerts of publishes that were rolled back; returns the lines to print."""

    def found(known: Project) -> list[Event]:
        manifest: Any = command.dbt_manifest()
        nodes = manifest.nodes.values()
        return events.of_rollback(
            publishes,
            run_id=command.run_id,
            at=datetime.now(UTC),
            project=known,
            node_ids={
                f"{node.schema}.{node.alias}": node.unique_id
                for node in nodes
                if str(node.resource_type) in BUILT_TYPES
            },
        )

    return _send(command, found)


def project(command: DbtCommand) -> Project:
    """Return owners and marks of dbt's manifest; nodes are converted at their first use."""
    manifest: Any = command.dbt_manifest()

    @cache
    def lookup(node_id: str) -> Mapping[str, Any] | None:
        node = (
            manifest.nodes.get(node_id)
            or manifest.sources.get(node_id)
            or manifest.unit_tests.get(node_id)
        )
        return None if node is None else dict(node.to_dict(omit_none=True))

    def named(name: str) -> list[str]:
        known = {**manifest.nodes, **manifest.unit_tests}
        return [key for key, node in known.items() if node.name == name]

    groups = {group.name: group.to_dict(omit_none=True) for group in manifest.groups.values()}
    return Project(lookup, named, groups)


def _send(command: DbtCommand, find: Callable[[Project], list[Event]]) -> list[str]:
    settings = command.settings.alerts
    if not settings.routes:
        return []
    # Imported late, because most runs have no routes.
    from sparkwap.alerts.notify import failure, safely

    try:
        found = find(project(command))
    except Exception as error:
        return failure(error)
    target = command.target_name
    return safely(command.lake.ledger, found, settings, target=target)


def _failures(manifest: ProjectManifest, results: Iterable[Any]) -> list[Failure]:
    bad = {seen.test_id: seen for seen in manifest.seen(results) if seen.status in _FAILED}
    return [
        Failure(test.test_id, test.name, test.reads, bad[test.test_id].failures)
        for test in manifest.tests()
        if test.test_id in bad
    ]


def _should_error(result: Any) -> bool:
    """Return whether the result row of a test has ``should_error``."""
    table = result["table"] if result is not None else None
    if table is None or not table.rows:
        return False
    row = dict(zip(table.column_names, table.rows[0], strict=True))
    return str(row.get("should_error")).lower() in ("true", "1")
