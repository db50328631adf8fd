"""The ledger's journal of sequential publishes and rollbacks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyiceberg import expressions
from pyiceberg.table import Table

from sparkwap.catalog import publish_journal
from sparkwap.catalog.backend import sequential
from sparkwap.catalog.model import LedgerRows
from sparkwap.catalog.pointers import Conflict, PointerUpdate, Unanswered
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import former_name
from sparkwap.ledger.records import time_of
from sparkwap.ledger.tables import LedgerTables, append_change, ex

_JOURNAL_KEY_AND_STATE = ("publish_id", "run_id", "action", "intended_at", "state")


class JournalTable(LedgerTables):
    """The table ``journal``; safe for use by several threads."""

    def open_journals(self) -> list[dict[str, Any]]:
        """Return the journal rows of publishes and rollbacks that have not ended."""
        rows = self.read("journal", columns=_JOURNAL_KEY_AND_STATE)
        ended = {_journal_key(row) for row in rows if publish_journal.is_closed({row["state"]})}
        open_ids = {row["publish_id"] for row in rows if _journal_key(row) not in ended}
        # What a journal moves can be long.
        whole = self.read("journal", ex.In("publish_id", open_ids)) if open_ids else []
        found = [r for r in whole if r["state"] == "intended" and _journal_key(r) not in ended]
        return sorted(found, key=lambda row: time_of(row["intended_at"]))

    def drop_set_aside(self) -> None:
        """Drop former tables under other names that no open journal needs; their files stay.

        An older version of sparkwap, which does not know these names, has ended their journal.
        """
        if self.lake.store.backend.takes_files:
            return  # Only a catalog that writes its metadata itself keeps such tables.
        backend, known = sequential(self.lake.store.backend), dict[str, dict[str, Any]]()
        for row in self.read("publishes", columns=("schema", "name", "base_metadata", "run_id")):
            for key in filter(None, (row["base_metadata"], row["run_id"])):
                of_schema = known.setdefault(row["schema"], {})
                of_schema[former_name(row["name"], key)] = (row["name"], key)
        named = [
            ((schema, former[one][0]), former[one][1])
            for schema, former in known.items()
            for one in backend.kinds(schema)
            if one in former
        ]
        found = list(filter(None, (backend.aside(*one) for one in named)))
        # Asked after the list, which then has nothing of a publish or rollback that begins later.
        if not found or self.open_journals():
            return
        for aside in found:
            with suppress(CatalogError, Conflict, Unanswered):
                backend.apply([PointerUpdate(aside, None)], documents={})

    def journal_states(self, row: Mapping[str, Any]) -> list[str]:
        """Return all states of a journal; ``row`` is any of its rows."""
        found = self.read("journal", _of_journal(row))
        return [other["state"] for other in found if _journal_key(other) == _journal_key(row)]

    def settle(self, row: Mapping[str, Any]) -> list[str]:
        """Append a state to a journal, unless it is closed or the other direction is decided.

        This is a compare and swap: no other process can append to the journal after the check.
        Returns all states that the journal has now.
        """
        states: list[str] = []

        def may(table: Table) -> bool:
            rows = table.scan(_of_journal(row), selected_fields=_JOURNAL_KEY_AND_STATE).to_arrow()
            found = [
                other for other in rows.to_pylist() if _journal_key(other) == _journal_key(row)
            ]
            states[:] = [other["state"] for other in found]
            return publish_journal.may_follow(states, row["state"])

        change = replace(append_change(LedgerRows("journal", [row])), only_if=may)
        self.lake.store.commit(lambda: self.stage_changes([change]), "ledger")
        return (
            [*states, row["state"]] if publish_journal.may_follow(states, row["state"]) else states
        )


def _journal_key(row: Mapping[str, Any]) -> tuple[str, str, str, datetime]:
    # With the time, as a second rollback of a publish may undo the tables that the first left.
    return row["publish_id"], row["run_id"], row["action"], row["intended_at"]


def _of_journal(row: Mapping[str, Any]) -> expressions.BooleanExpression:
    found: expressions.BooleanExpression = ex.EqualTo("publish_id", row["publish_id"])
    return found
