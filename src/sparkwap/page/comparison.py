"""Makes rows for tables about the differences of two states of the lake. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkwap.core.text import counted
from sparkwap.diff.model import SchemaChange
from sparkwap.page.formats import format_value

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableSide:
    """A table in one of two compared states.

    Attributes:
        kind: ``table`` or ``view``.
        rows: The number of rows; None if metadata does not have it.
        snapshot: The snapshot; None for a view or a table without rows.
        columns: Names and types, in order.
    """

    kind: str
    rows: int | None
    snapshot: int | None
    summary: Mapping[str, str]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """The differences of a table between two states of the lake.

    Attributes:
        name: Schema and table.
        new: The new state; None if the table does not exist there; the same for ``old``.
        same: Whether both states are the same snapshot.
        commits: The summaries of the snapshots since the old state.
    """

    name: str
    new: TableSide | None
    old: TableSide | None
    columns: SchemaChange
    same: bool
    commits: Sequence[Mapping[str, str]] = field(default_factory=tuple)

    @property
    def change(self) -> str:
        """The difference in a few words."""
        if self.new is None:
            return "missing"
        if self.old is None:
            return f"new {self.new.kind}"
        if self.same:
            return "the same snapshot"
        parts = [*schema_lines(self.columns)]
        if self.new.rows is not None and self.old.rows is not None:
            difference = self.new.rows - self.old.rows
            parts.append(f"{difference:+,} rows" if difference else "same number of rows")
        return "; ".join(parts) or "another snapshot"

    @property
    def written(self) -> str:
        """The rows that its commits wrote, from their snapshot summaries."""
        added = sum(_number(summary, "added-records") for summary in self.commits)
        deleted = sum(_number(summary, "deleted-records") for summary in self.commits)
        if not self.commits:
            return ""
        how = ", ".join(sorted({str(s.get("operation", "")) for s in self.commits} - {""}))
        return f"{counted(len(self.commits), 'commit')} ({how}): {added:,} in, {deleted:,} out"


def schema_lines(change: SchemaChange) -> list[str]:
    """Return a line for each column that differs."""
    return [
        *(f"column {column.name} added ({column.type})" for column in change.added),
        *(f"column {column.name} removed ({column.type})" for column in change.removed),
        *(
            f"column {column.name} was {column.before}, is {column.after}"
            for column in change.retyped
        ),
        *(f"column {column.before} renamed to {column.after}" for column in change.renamed),
    ]


def comparison_rows(found: Iterable[TableComparison]) -> list[dict[str, Any]]:
    """Return a row for each table of two states of the lake; tables that differ come first."""
    rows = sorted(found, key=lambda table: (table.same, table.name))
    return [
        {
            "table": table.name,
            "change": table.change,
            "rows left": table.old.rows if table.old else None,
            "rows right": table.new.rows if table.new else None,
            "written": table.written,
            "snapshot left": _snapshot(table.old),
            "snapshot right": _snapshot(table.new),
        }
        for table in rows
    ]


def column_rows(table: TableComparison) -> list[dict[str, str]]:
    """Return the columns of both states, side by side."""
    old = dict(table.old.columns) if table.old else {}
    new = dict(table.new.columns) if table.new else {}
    names = [*old, *(name for name in new if name not in old)]
    return [
        {
            "column": name,
            "left": old.get(name, "—"),
            "right": new.get(name, "—"),
            "": "" if old.get(name) == new.get(name) else "◄ differs",
        }
        for name in names
    ]


def summary_rows(table: TableComparison) -> list[dict[str, str]]:
    """Return the snapshot summaries of both states, side by side."""
    old = table.old.summary if table.old else {}
    new = table.new.summary if table.new else {}
    return [
        {"key": key, "left": str(old.get(key, "—")), "right": str(new.get(key, "—"))}
        for key in sorted({*old, *new})
    ]


def _snapshot(side: TableSide | None) -> str:
    # As text, because a browser's numbers have fewer digits.
    return "" if side is None or side.snapshot is None else str(side.snapshot)


def _number(summary: Mapping[str, str], key: str) -> int:
    text = str(summary.get(key, "0"))
    return int(text) if text.isdecimal() else 0


def diff_rows(document: Row) -> list[dict[str, Any]]:
    """Return the tables of a comparison by `wap_diff`, those with most changes first."""
    rows = sorted(
        document["tables"],
        key=lambda table: (-_changed(table), table["schema"], table["name"]),
    )
    return [
        {
            "table": f"{table['schema']}.{table['name']}",
            "change": table["change"],
            "added": table["rows"]["added"],
            "removed": table["rows"]["removed"],
            "changed": table["rows"]["changed"],
            "columns with changed values": ", ".join(
                f"{name} ({count:,})" for name, count in table["columns"]["changed"].items()
            ),
            "notes": "; ".join(table["notes"]),
        }
        for table in rows
    ]


def diff_samples(
    table: Row, hidden: Callable[[str, Sequence[str]], Collection[str]]
) -> list[dict[str, Any]]:
    """Return the sample rows of a table in a stored comparison, with old and new values.

    Args:
        hidden: Returns the columns of a table that are hidden now, in lower case; a column may
            have been marked after the comparison.
    """
    found = []
    for sample in table["samples"]:
        before, after = sample["before"] or {}, sample["after"] or {}
        names = [*before, *(name for name in after if name not in before)]
        hides = hidden(f"{table['schema']}.{table['name']}", names)
        names = [name for name in names if name.lower() not in hides]
        found.append({"change": sample["change"], **{n: _moved(before, after, n) for n in names}})
    return found


def is_stale(document: Row, nodes: Iterable[Row]) -> bool:
    """Return whether a branch was built after a stored comparison of it."""
    at = datetime.fromisoformat(document["at"])
    return any(row["built_at"] is not None and row["built_at"] > at for row in nodes)


def _changed(table: Row) -> int:
    return int(table["rows"]["added"] + table["rows"]["removed"] + table["rows"]["changed"])


def _moved(before: Row, after: Row, name: str) -> str:
    if not before or not after or before.get(name) == after.get(name):
        return format_value((after or before).get(name))
    return f"{format_value(before.get(name))} → {format_value(after.get(name))}"
