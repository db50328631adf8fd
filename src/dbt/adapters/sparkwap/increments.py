"""Finds what was added to large tables since tests of them have passed.

See `sparkwap.audits.incremental` for the rules. The added data files become a private table, which
a shared statement reads in place of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.__version__ import version
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.audits.incremental import (
    Answer,
    added_files,
    basis,
    follows_from_the_row,
    is_due,
    latest,
    passed,
)
from sparkwap.audits.shared_statement import form_of
from sparkwap.catalog import metadata as md
from sparkwap.catalog.private_catalog import PrivateCatalog
from sparkwap.catalog.snapshot_files import Part, Snapshot, Unreadable
from sparkwap.catalog.sparksql import current_schema

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.catalog import Identifier
    from sparkwap.runs.run import Run

WORTH_ROWS = 200_000
"""The rows of a table from which on its files are compared; it costs about a second."""


@dataclass(frozen=True, slots=True)
class Question:
    """A test of a batch.

    Attributes:
        test_id: The test.
        query: Its query.
        read: The state of the tables that it reads.
    """

    test_id: str
    query: str
    read: Mapping[Identifier, tuple[str, str]]


@dataclass
class Increments:
    """How the tests of a batch are answered, and the files to delete afterwards.

    Attributes:
        answers: How each test is answered.
        added: The private tables to read, by the index of the test.
        checked: The tests that read all rows although the added ones would do: by index, the
            private table, the snapshot that has passed, and the one to audit.
        parts: The files of these tables.
    """

    answers: list[Answer]
    added: dict[int, str] = field(default_factory=dict)
    checked: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    def remove(self) -> None:
        """Delete the files of the private tables."""
        for part in self.parts:
            part.remove()


class IncrementFinder:
    """Finds the rows that tests of a command have to read.

    Args:
        command: The command.
    """

    def __init__(self, command: DbtCommand) -> None:
        self._command = command
        self._usable = True

    def find(self, run: Run | None, questions: Sequence[Question]) -> Increments:
        """Return how tests are answered; in doubt, from all rows."""
        found = Increments([Answer() for _ in questions])
        if run is None or not (run.settings.incremental_audits and self._usable):
            return found
        asked = {at: one for at, one in enumerate(questions) if self._may_build_on(one)}
        if not asked:
            return found
        rows = self._command.lake.ledger.results_of([one.test_id for one in asked.values()])
        private = PrivateCatalog(
            self._command.connections.rows_of, self._command.credentials.catalog_name
        )
        made: dict[tuple[str, int], str | None] = {}
        now = datetime.now(UTC)
        for at, one in asked.items():
            ((identifier, (_, location)),) = one.read.items()
            document = self._command.lake.store.load(location)
            digest = basis(one.query, current_schema(document), self._settings, self._versions)
            found.answers[at] = Answer("shared", digest, now)
            head = self._head(run, document)
            node = self._command.manifest.owner(identifier)
            known = passed(rows.get(one.test_id, ()), node, digest) if node else []
            base = latest(known, document, head)
            if base is None or head is None:
                continue
            key = (location, base.snapshot)
            if key not in made:
                made[key] = self._table(document, base.snapshot, head, private, found)
            if (name := made[key]) is None:
                continue
            days, audits = run.settings.whole_audit_days, run.settings.whole_audit_every
            if is_due(base, now, days, audits):
                found.checked[at] = (name, base.snapshot, head)
            else:
                found.added[at] = name
                found.answers[at] = Answer("incremental", digest, base.whole_at, base.since + 1)
        return found

    def _may_build_on(self, one: Question) -> bool:
        form = form_of(one.query)
        if form is None or len(one.read) != 1:
            return False
        if form.key is None and not follows_from_the_row(form.condition):
            return False
        ((_, location),) = one.read.values()
        return self._command.lake.most_rows(location) >= WORTH_ROWS

    def _head(self, run: Run, document: md.Document) -> int | None:
        """Return the snapshot that a session of the run reads."""
        refs = md.refs_of(document)
        gated = md.properties_of(document).get(md.WAP_ENABLED) == "true"
        ref = (refs.get(run.branch) if gated else None) or refs.get(md.MAIN)
        return ref.snapshot_id if ref else None

    def _table(
        self,
        document: md.Document,
        base: int,
        head: int,
        private: PrivateCatalog,
        found: Increments,
    ) -> str | None:
        """Return the private table of the added files; None if all rows have to be read."""
        if not self._usable:
            return None
        store = self._command.lake.store
        states = [md.snapshot(document, one) for one in (base, head)]
        if None in states:
            return None
        old, new = (Snapshot(store, document, one) for one in states if one is not None)
        try:
            common = {m.path for m in old.manifests} & {m.path for m in new.manifests}
            paths = added_files(old.files(common), new.files(common))
            if paths is None:
                return None
            part = new.part(paths)
            found.parts.append(part)
            if part.rows > (new.count("total-records") or 0) / 2:
                return None
            self._command.connections.end_session_later()
            return private.register(part.location)
        except (Unreadable, OSError) as error:
            logger.debug(f"the added rows are not known: {error}")
            return None
        except Exception as error:
            # A server without SQLite's driver; the next tables would fail as this one.
            logger.debug(f"the session cannot have private tables: {error}")
            self._usable = False
            return None

    @cached_property
    def _settings(self) -> dict[str, str]:
        found: Mapping[str, Any] = self._command.connections.pool.settings
        return {
            key: value
            for key, value in found.items()
            if not key.startswith(("spark.wap.", "spark.sql.iceberg.snapshot-property."))
        }

    @cached_property
    def _versions(self) -> str:
        ((spark,),) = self._command.connections.rows_of("select version()")
        return f"{version} {spark}"
