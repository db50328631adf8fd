"""Wider types for columns whose values, texts of a log or of a state, need one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparkwap.cdc.history import Run, marks
from sparkwap.cdc.sql import quote
from sparkwap.core.spark_types import wider


class Cast(NamedTuple):
    """A text that becomes a column of some type.

    Attributes:
        text: SQL of the text.
        kind: The type.
        column: The column that the cast makes.
    """

    text: str
    kind: str
    column: str


class Widening:
    """Wider types for the columns of one table.

    Args:
        standing: The types of the table's columns; one that is wider stays so.
        run: Sends a statement and returns the first row of its result.
        tell: Is called with what there is to tell of a type that is new.
    """

    def __init__(self, standing: Mapping[str, str], run: Run, tell: Callable[[str], None]) -> None:
        self._standing, self._run, self._tell = standing, run, tell

    def events(
        self,
        columns: Mapping[str, str],
        casts: Mapping[str, tuple[str, str]],
        log: str,
        table: str | None,
    ) -> dict[str, str]:
        """SQL by column of events, see the macro `change_events`.

        Args:
            columns: SQL by name.
            casts: Of those that are nothing but a cast, its text and type.
            log: The log.
            table: The history, whose rows' values are not asked again; None for all of the log.
        """

        def rows() -> str:
            seen = -1 if table is None else marks(table, None, self._run).batch
            return f"{log} where _kind = 'row' and _batch > {seen}"

        wide = self._types({name: Cast(*cast, name) for name, cast in casts.items()}, rows)
        return {**columns, **{n: f"cast({casts[n][0]} as {kind})" for n, kind in wide.items()}}

    def typed(self, column: str, kind: str, name: str, state: str) -> str:
        """The type of a column, see the macro `exact_cast`.

        Args:
            column: The state's column.
            kind: The type that it is to have.
            name: The column that the cast makes.
            state: The table with the values.
        """
        cast = {column: Cast(quote(column), kind, name)}
        return self._types(cast, lambda: f"{state} where not _is_deleted").get(column, kind)

    def _types(self, casts: Mapping[str, Cast], rows: Callable[[], str]) -> dict[str, str]:
        """The wider types, by name of the cast, of those that need one."""
        types = {name: wide for name, cast in casts.items() if (wide := wider(cast.kind))}
        open_ = {n: casts[n] for n in types if self._standing.get(casts[n].column) != types[n]}
        misfits = ", ".join(
            f"count_if({text} is not null and try_cast({text} as {kind}) is null)"
            for text, kind, _ in open_.values()
        )
        counts = self._run(f"select {misfits} from {rows()}") if open_ else ()
        for (name, cast), count in zip(open_.items(), counts, strict=True):
            if count:
                told = f"{count} values are no {cast.kind}; its type is now {types[name]}"
                self._tell(f"column {name}: {told}")
            else:
                del types[name]
        return types
