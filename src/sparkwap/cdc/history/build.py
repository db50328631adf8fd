"""SQL for one build of a model with ``materialized: scd2``, for its macros."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from sparkwap.cdc.event_sql import quote
from sparkwap.cdc.history import steps
from sparkwap.cdc.history.extend import Extension
from sparkwap.cdc.history.marks import HistoryMarks, Run, marks, met
from sparkwap.cdc.history.settings import HistorySettings
from sparkwap.cdc.history.versions import versions


@dataclass(frozen=True)
class HistoryBuild:
    """One build of a history. Table arguments are objects that render to the table's name.

    Attributes:
        restate: SQL condition for the keys to build again; None for none.
    """

    history: HistorySettings
    restate: str | None
    run: Run

    def whole(self, published: object, columns: Collection[str]) -> str:
        """Return SQL of the whole history from the whole log.

        Args:
            published: The published state of the table, whose versions keep their surrogate keys;
                None if there is none.
        """
        history, found = self.history, met(self.history, self.run)
        resets = history.resets(history.sql) if found.resets else None
        known = published and history.surrogate_key in columns
        history = replace(history, partial=found.partial)
        return _numbered(history, resets, str(published) if known else None)

    def shape(self) -> str:
        """Return SQL with the columns of the history and no rows."""
        nothing = f"select * from ({self.history.sql}) where false"
        return _numbered(replace(self.history, sql=nothing, partial=False))

    def marks(self, table: object) -> HistoryMarks:
        """Return the last batch and the highest surrogate key of a table."""
        found = marks(str(table), self.history.surrogate_key, self.run)
        return found._replace(number=max(found.number, self.history.highest))

    def extension(
        self, table: object, columns: Collection[str], seen: HistoryMarks, stage: str
    ) -> Extension:
        """Return the extension of a table by the new batches of the log."""
        history = replace(
            self.history,
            payload=[c for c in self.history.payload if c in columns],
            tracked=[c for c in self.history.tracked if c in columns],
        )
        return Extension(history, str(table), seen, stage, self.restate, self.run)


def _numbered(
    history: HistorySettings, resets: str | None = None, published: str | None = None
) -> str:
    """Return SQL of versions with their last batch and with surrogate keys."""
    rows = versions(history, steps.events(history, history.sql), resets)
    number = history.surrogate_key
    made = {"_batch": f"(select max(_batch) from ({history.sql}))"}
    if number:
        made[number] = f"cast({_number(history, published)} as bigint)"
    columns = [f"{made[c]} as {quote(c)}" if c in made else f"versions.{quote(c)}"
               for c in history.columns]  # fmt: skip
    sql = f"select {', '.join(columns)}\nfrom ({rows}) as versions"
    if published:
        same = steps.same("versions", "known", [*history.keys, "valid_from"])
        sql += f"\nleft join {published} as known on {same}"
    return sql


def _number(history: HistorySettings, published: str | None) -> str:
    order = ", ".join(f"versions.{quote(c)}" for c in ("valid_from", *history.keys))
    if not published:
        return f"{history.highest} + row_number() over (order by {order})"
    column = quote(str(history.surrogate_key))
    new = f"known.{column} is null"
    following = f"row_number() over (partition by {new} order by {order})"
    highest = f"greatest((select max({column}) from {published}), {history.highest})"
    return f"coalesce(known.{column}, {highest}) + if({new}, {following}, 0)"
