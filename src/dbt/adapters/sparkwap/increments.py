"""Finds what was added to large tables since tests of them have passed.

See `sparkwap.audits.incremental` for the rules. The added data files become a private table, which
a shared statement reads in place of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.__version__ import version
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.audits.incremental import (
    Answer,
    Question,
    added_files,
    basis,
    is_due,
    key_range,
    latest,
    passed,
)
from sparkwap.audits.row_condition import follows_from_the_row
from sparkwap.audits.shared_statement import Added, Form, form_of
from sparkwap.catalog import metadata as md
from sparkwap.catalog.private_catalog import PrivateCatalog
from sparkwap.catalog.snapshot_files import Part, Snapshot, common_manifests
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core.names import folded
from sparkwap.core.sqllex import tokens
from sparkwap.core.sqltext import quote
from sparkwap.core.text import first_line

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.runs.run import Run

WORTH_ROWS = 1_000_000
"""The rows of a table from which on its files are compared; smaller ones are read faster."""
_REMEMBERED = 4
"""The multiple of the days between audits of all rows for which results are looked up."""


@dataclass
class Increments:
    """How the tests of a batch are answered, and the files to delete afterwards.

    Attributes:
        answers: How each test is answered.
        added: What to read instead of the table, by the index of the test.
        checked: The tests that read all rows although the added ones would do: by index, the added
            rows, the snapshot that has passed, and the one to audit.
        parts: The files of these tables.
        tried: Whether a test may build on an earlier result.
    """

    answers: list[Answer]
    added: dict[int, Added] = field(default_factory=dict)
    checked: dict[int, tuple[Added, int, int]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    tried: bool = False

    def remove(self) -> None:
        """Delete the files of the private tables; a sweep deletes those that stay."""
        for part in self.parts:
            try:
                part.remove()
            except Exception as error:
                logger.debug(f"the files of a private table stay: {error}")


class IncrementFinder:
    """Finds the rows that tests of a command have to read.

    Args:
        command: The command.
    """

    def __init__(self, command: DbtCommand) -> None:
        self._command = command
        self._usable = True
        self._found: dict[str, list[dict[str, Any]]] | None = None

    def give_up(self, error: Exception) -> None:
        """Read all rows from now on: the session cannot read the private tables."""
        if self._usable:
            logger.info(
                "sparkwap  audits read all rows of large tables: the server cannot read a table of "
                f"the added rows alone ({first_line(str(error))}). The setting "
                "wap_audits_incremental: never saves the attempt"
            )
        self._usable = False

    def find(self, run: Run | None, questions: Sequence[Question], found: Increments) -> None:
        """Find out how tests are answered; in doubt, from all rows."""
        if run is None or not (run.settings.incremental_audits and self._usable):
            return
        asked = {at: form for at, one in enumerate(questions) if (form := self._known_form(one))}
        if not asked:
            return
        found.tried = True
        session, now = self._session, datetime.now(UTC)
        if ("spark.sql.hive.thriftServer.singleSession", "true") in session:
            return  # others may have made functions and variables in this session
        days, audits = run.settings.whole_audit_days, run.settings.whole_audit_every
        rows = self._results(now, days)
        private = PrivateCatalog(
            self._command.connections.rows_of, self._command.credentials.catalog_name
        )
        made: dict[tuple[str, int], tuple[str, Part] | None] = {}
        histories: dict[str, list[md.Document]] = {}
        for at, form in asked.items():
            one = questions[at]
            ((_, location),) = one.read.values()
            document = self._command.lake.store.load(location)
            digest = basis(_without_name(one.query, form), document, session)
            head = self._head(run, document)
            if head is None:
                continue
            answer = Answer("shared", digest, now, 0, head, location)
            found.answers[at] = answer
            if location not in histories:
                histories[location] = list(md.ancestors(document, head))
            base = latest(passed(rows.get(one.test_id, ()), digest), histories[location])
            if base is None:
                continue
            key = (location, base.snapshot)
            if key not in made:
                made[key] = self._table(document, base.snapshot, head, private, found)
            if (private_table := made[key]) is None:
                continue
            name, part = private_table
            added = Added(name, form.key and key_range(form.key, document, part.bounds))
            if is_due(base, now, days, audits):
                found.checked[at] = (added, base.snapshot, head)
            else:
                found.added[at] = added
                found.answers[at] = replace(
                    answer, how="incremental", whole_at=base.whole_at, since=base.since + 1
                )

    def _known_form(self, one: Question) -> Form | None:
        """Return the form of a test that may build on an earlier result; None for others."""
        form = form_of(one.query)
        # Spark may put the value of a variable in, also into a comment.
        if form is None or len(one.read) != 1 or "${" in one.query:
            return None
        ((identifier, (_, location)),) = one.read.items()
        name = folded(identifier)
        # The query may name something else: a metadata table, or a table of another catalog.
        if form.table not in (name, (self._command.credentials.catalog_name.lower(), *name)):
            return None
        if self._command.lake.most_rows(location) < WORTH_ROWS:
            return None
        fields = current_schema(self._command.lake.store.load(location))["fields"]
        return form if follows_from_the_row(form.condition, fields) else None

    def _head(self, run: Run, document: md.Document) -> int | None:
        """Return the snapshot that a session of the run reads."""
        refs = md.refs_of(document)
        gated = md.properties_of(document).get(md.WAP_ENABLED, "").lower() == "true"
        ref = (refs.get(run.branch) if gated else None) or refs.get(md.MAIN)
        return ref.snapshot_id if ref else None

    def _table(
        self,
        document: md.Document,
        base: int,
        head: int,
        private: PrivateCatalog,
        found: Increments,
    ) -> tuple[str, Part] | None:
        """Return the private table of the added files; None if all rows have to be read."""
        if not self._usable:
            return None
        store = self._command.lake.store
        states = [md.snapshot(document, one) for one in (base, head)]
        if None in states:
            return None
        old, new = (Snapshot(store, document, one) for one in states if one is not None)
        try:
            common = common_manifests(old, new)
            added = added_files(old.files(common), new.files(common))
            rows = sum(file.rows for file in added or ())
            if added is None or rows > (new.count("total-records") or 0) / 2:
                return None
            part = new.part({file.path for file in added}, common)
        except Exception as error:
            logger.debug(f"the added rows are not known: {error}")
            return None
        found.parts.append(part)
        self._command.connections.end_session_later()
        try:
            return private.register(part.location), part
        except Exception as error:
            # A server without SQLite's driver; the next tables would fail as this one.
            self.give_up(error)
            return None

    def _results(self, now: datetime, days: float) -> dict[str, list[dict[str, Any]]]:
        """Return the results of earlier commands; read once."""
        if self._found is None:
            since = now - timedelta(days=min(_REMEMBERED * days, 36_500))
            self._found = self._command.lake.ledger.results_to_build_on(since)
        return self._found

    @cached_property
    def _session(self) -> list[tuple[str, ...]]:
        """What answers follow from besides rows and query, before a private catalog is set."""
        rows_of = self._command.connections.rows_of
        found = [tuple(map(str, row[:2])) for row in rows_of("set")]
        ignored = (
            "spark.sql.catalog.", "spark.sql.iceberg.snapshot-property.",
            # They change how Spark finds an answer, and not the answer.
            "spark.sql.adaptive.", "spark.sql.codegen.", "spark.sql.shuffle.",
            # How results are shown; the Thrift server sets it with some statements.
            "spark.sql.binaryOutputStyle",
        )  # fmt: skip
        settings = [
            one
            for one in found
            if one[0].startswith("spark.sql.") and not one[0].startswith(ignored)
        ]
        # Its default follows from the server's environment, so `set` alone does not list it.
        ((_, ansi, *_),) = rows_of("set spark.sql.ansi.enabled")
        catalog = quote(self._command.credentials.catalog_name)
        ((*facts,),) = rows_of(
            "select version(), current_timezone(), current_user(), "
            # Patterns, numbers as texts, letters and time zones differ between versions of Java.
            "java_method('java.lang.System', 'getProperty', 'java.version'), "
            "java_method('java.util.Locale', 'getDefault'), "
            "java_method('java.time.zone.ZoneRulesProvider', 'getVersions', 'UTC'), "
            f"{catalog}.system.iceberg_version()"
        )
        return [*settings, (version, str(ansi), *map(str, facts))]


def _without_name(query: str, form: Form) -> str:
    """Return a query without the name of its table: a new one is built beside."""
    return " ".join(token.text for token in tokens(query)).replace(form.relation, "?", 1)
