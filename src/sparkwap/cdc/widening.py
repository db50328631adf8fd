"""Finds wider types for columns, if the texts of a log or a state need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparkwap.cdc.event_sql import quote
from sparkwap.cdc.history import Run, marks
from sparkwap.core.spark_types import wider


class Cast(NamedTuple):
    """A cast of a text, as SQL, to a column's type."""

    text: str
    kind: str
    column: str


class Widening:
    """Wider types for the columns of one table; a wider type that it has stays."""

    def __init__(self, present: Mapping[str, str], run: Run, tell: Callable[[str], None]) -> None:
        self._present, self._run, self._tell = present, run, tell

    def events(
        self,
        columns: Mapping[str, str],
        casts: Mapping[str, tuple[str, str]],
        log: str,
        table: str | None,
    ) -> dict[str, str]:
        """Return SQL by column of events, see the macro `change_events`.

        Args:
            columns: Column name to SQL.
            casts: Column name to text and type, for the columns whose SQL is only a cast.
            table: The history, whose batches are not checked again; None to check the whole log.
        """

        def rows() -> str:
            seen = -1 if table is None else marks(table, None, self._run).batch
            return f"{log} where _kind = 'row' and _batch > {seen}"

        wide = self._types({name: Cast(*cast, name) for name, cast in casts.items()}, rows)
        return {**columns, **{n: f"cast({casts[n][0]} as {kind})" for n, kind in wide.items()}}

    def typed(self, column: str, kind: str, name: str, state: str) -> str:
        """Return the type of a column, see the macro `exact_cast`."""
        cast = {column: Cast(quote(column), kind, name)}
        return self._types(cast, lambda: f"{state} where not _is_deleted").get(column, kind)

    def _types(self, casts: Mapping[str, Cast], rows: Callable[[], str]) -> dict[str, str]:
        """Return the wider type of each cast that needs one, by name."""
        types = {name: wide for name, cast in casts.items() if (wide := wider(cast.kind))}
        open_ = {n: casts[n] for n in types if self._present.get(casts[n].column) != types[n]}
        misfits = ", ".join(
            f"count_if({text} is not null and try_cast({text} as {kind}) is null)"
            for text, kind, _ in open_.values()
        )
        counts = self._run(f"select {misfits} from {rows()}") if open_ else ()
        for (name, cast), count in zip(open_.items(), counts, strict=True):
            if count:
                self._tell(f"column {name}: {count} values do not fit {cast.kind}; its type is now "
                           f"{types[name]}")  # fmt: skip
            else:
                del types[name]
        return types
