"""Finds what has changed in large tables since tests of them have passed.

See `sparkwap.audits.incremental` for the rules. A shared statement reads the private tables of
`changed_rows` in place of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.__version__ import version
from dbt.adapters.sparkwap.changed_rows import NOTHING, ChangedRows, ReadState, Unreadable
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.audits.forms import Form, form_of
from sparkwap.audits.incremental import (
    Answer,
    Passed,
    Question,
    basis,
    is_due,
    latest,
    passed,
)
from sparkwap.audits.shared_statement import Changed
from sparkwap.catalog import metadata as md
from sparkwap.catalog.snapshot_files import Part
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


@dataclass(frozen=True, slots=True)
class Checked:
    """A test that reads all rows although the changed ones would do.

    Attributes:
        before: The snapshots that have passed, with their tables.
        now: Those to audit.
    """

    changed: Changed
    before: str
    now: str


@dataclass
class Increments:
    """How the tests of a batch are answered, and the files to delete afterwards.

    Attributes:
        changed: What to read instead of the table, by the index of the test.
        checked: The tests that read all rows although the changed ones would do, by index.
        tried: Whether a test may build on an earlier result.
    """

    answers: list[Answer]
    changed: dict[int, Changed] = field(default_factory=dict)
    checked: dict[int, Checked] = field(default_factory=dict)
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
    """Finds the rows that tests of a command have to read."""

    def __init__(self, command: DbtCommand) -> None:
        self._command = command
        self._usable = True
        self._found: dict[str, list[dict[str, Any]]] | None = None

    def give_up(self, error: Exception) -> None:
        """Read all rows from now on: the session cannot read the private tables."""
        if self._usable:
            logger.info(
                "sparkwap  audits read all rows of large tables: the server cannot read a table of "
                f"the changed rows alone ({first_line(str(error))}). The setting "
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
        parts = ChangedRows(self._command, found.parts)
        for at, form in asked.items():
            one = questions[at]
            states = self._states(run, form, one)
            if states is None:
                continue
            digest = basis(_without_names(form), [state.document for state in states], session)
            heads = [state.head for state in states]
            locations = tuple(state.location for state in states)
            parent = heads[1] if form.parent else None
            answer = Answer("shared", digest, now, 0, heads[0], parent, locations)
            found.answers[at] = answer
            results = [
                parts.forwarded(result, states)
                for result in passed(rows.get(one.test_id, ()), digest)
            ]
            base = latest(results, *map(parts.history, states))
            changed = self._changed(form, states, base, parts) if base else None
            if base is None or changed is None:
                continue
            if is_due(base, now, days, audits):
                before = (base.snapshot, base.parent)
                found.checked[at] = Checked(changed, _listed(states, before), _listed(states))
            else:
                found.changed[at] = changed
                found.answers[at] = replace(
                    answer, how="incremental", whole_at=base.whole_at, since=base.since + 1
                )

    def _known_form(self, one: Question) -> Form | None:
        """Return the form of a test that may build on an earlier result; None for others."""
        form = form_of(one.query)
        # Spark may put the value of a variable in, also into a comment.
        if form is None or "${" in one.query:
            return None
        places = self._places(form, one)
        if places is None or len({*places}) != len(one.read):
            return None
        rows = sum(map(self._command.lake.most_rows, {location for _, location in places}))
        if rows < WORTH_ROWS:
            return None
        load = self._command.lake.store.load
        fields = [current_schema(load(location))["fields"] for _, location in places]
        return form if form.follows_from_rows(*fields) else None

    def _places(self, form: Form, one: Question) -> list[tuple[str, str]] | None:
        """Return name and metadata file of each table that a form names; None if one is unknown.

        The query may name something else: a metadata table, or a table of another catalog.
        """
        catalog = self._command.credentials.catalog_name.lower()
        known: dict[tuple[str, ...], tuple[str, str]] = {}
        for identifier, (_, location) in one.read.items():
            name = folded(identifier)
            known[name] = known[catalog, *name] = (".".join(identifier), location)
        places = [known.get(name) for name in form.tables]
        return [one for one in places if one is not None] if None not in places else None

    def _states(self, run: Run, form: Form, one: Question) -> list[ReadState] | None:
        """Return the states of the tables that a form names; None if one has no rows yet."""
        states = []
        for name, location in self._places(form, one) or ():
            document = self._command.lake.store.load(location)
            head = self._head(run, document)
            if head is None:
                return None
            states.append(ReadState(name, location, document, head))
        return states

    def _changed(
        self, form: Form, states: Sequence[ReadState], base: Passed, parts: ChangedRows
    ) -> Changed | None:
        """Return what has changed since a result; None if all rows have to be read."""
        if not self._usable:
            return None
        table, parent = states[0], states[-1]
        try:
            added = parts.added(table, base.snapshot)
            if form.parent:
                # A parent that is built as a whole may be small beside the table.
                lost = parts.lost(parent, base.parent, beside=table)
            else:
                lost = parts.lost(table, base.snapshot) if form.by_loss else NOTHING
            if added is None or lost is None:
                return None
        except Unreadable as error:
            self.give_up(error.cause)
            return None
        except Exception as error:
            logger.debug(f"the changed rows are not known: {error}")
            return None
        if not form.keys:
            return Changed(added.name)
        (key, *_), field = form.keys, form.field or form.keys[0]
        ranges = added.range_of(key, table.document), lost.range_of(field, parent.document)
        return Changed(added.name, ranges[0], lost.name, ranges[1])

    def _head(self, run: Run, document: md.Document) -> int | None:
        """Return the snapshot that a session of the run reads."""
        refs = md.refs_of(document)
        gated = md.is_gated(md.properties_of(document))
        ref = (refs.get(run.branch) if gated else None) or refs.get(md.MAIN)
        return ref.snapshot_id if ref else None

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


def _listed(states: Sequence[ReadState], snapshots: Sequence[int | None] | None = None) -> str:
    """Return states as text, or other snapshots of their tables."""
    numbers = snapshots or [state.head for state in states]
    named = zip(states, numbers, strict=False)
    return " with ".join(f"snapshot {number} of {state.name}" for state, number in named)


def _without_names(form: Form) -> str:
    """Return a query without the names of its tables: a new one is built beside."""
    text = " ".join(token.text for token in tokens(form.on("?")))
    return text.replace(form.parent, "?", 1) if form.parent else text
