"""How two states of the lake differ, as rows for tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkwap.diff.model import SchemaChange
from sparkwap.page.formats import format_count, format_value

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableSide:
    """A table in one of two compared states.

    Attributes:
        kind: ``table`` or ``view``.
        place: Whether it is the table itself, or an object of a side schema.
        rows: The number of rows; None where metadata does not have it.
        snapshot: The snapshot; None for a view or a table without rows.
        written_at: When the snapshot was written.
        summary: The snapshot's summary.
        columns: Names and types, in order.
    """

    kind: str
    place: str
    rows: int | None
    snapshot: int | None
    written_at: datetime | None
    summary: Mapping[str, str]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """How a table differs between two states of the lake.

    Attributes:
        name: Schema and table.
        new: The new state; None if the table does not exist there.
        old: The old one.
        columns: How the columns differ.
        same: Whether both are one and the same snapshot.
        commits: The summaries of the snapshots of the new state that are not the old one's.
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
            return "not there"
        if self.old is None:
            return f"new {self.new.kind}"
        if self.same:
            return "the same snapshot"
        parts = [*schema_lines(self.columns)]
        if self.new.rows is not None and self.old.rows is not None:
            difference = self.new.rows - self.old.rows
            parts.append(f"{difference:+,} rows" if difference else "as many rows")
        return "; ".join(parts) or "another snapshot"

    @property
    def written(self) -> str:
        """What its commits wrote, from their snapshot summaries."""
        added = sum(_number(one, "added-records") for one in self.commits)
        deleted = sum(_number(one, "deleted-records") for one in self.commits)
        if not self.commits:
            return ""
        how = ", ".join(sorted({str(one.get("operation", "")) for one in self.commits} - {""}))
        return f"{format_count(len(self.commits), 'commit')} ({how}): {added:,} in, {deleted:,} out"


def schema_lines(change: SchemaChange) -> list[str]:
    """A change of columns in words, one line for each column."""
    return [
        *(f"column {one.name} added ({one.type})" for one in change.added),
        *(f"column {one.name} removed ({one.type})" for one in change.removed),
        *(f"column {one.name} was {one.before}, is {one.after}" for one in change.retyped),
        *(f"column {one.before} is called {one.after}" for one in change.renamed),
    ]


def comparison_rows(found: Iterable[TableComparison]) -> list[dict[str, Any]]:
    """Two states of the lake, one line for each table; those that differ first."""
    rows = sorted(found, key=lambda one: (one.same, one.name))
    return [
        {
            "table": one.name,
            "change": one.change,
            "rows left": one.old.rows if one.old else None,
            "rows right": one.new.rows if one.new else None,
            "written": one.written,
            "snapshot left": _snapshot(one.old),
            "snapshot right": _snapshot(one.new),
        }
        for one in rows
    ]


def column_rows(one: TableComparison) -> list[dict[str, str]]:
    """The columns of both sides, side by side."""
    old = dict(one.old.columns) if one.old else {}
    new = dict(one.new.columns) if one.new else {}
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


def summary_rows(one: TableComparison) -> list[dict[str, str]]:
    """The snapshot summaries of both sides, side by side."""
    old = one.old.summary if one.old else {}
    new = one.new.summary if one.new else {}
    return [
        {"key": key, "left": str(old.get(key, "—")), "right": str(new.get(key, "—"))}
        for key in sorted({*old, *new})
    ]


def _snapshot(side: TableSide | None) -> str:
    # As text: more digits than a browser's numbers have.
    return "" if side is None or side.snapshot is None else str(side.snapshot)


def _number(summary: Mapping[str, str], key: str) -> int:
    text = str(summary.get(key, "0"))
    return int(text) if text.isdecimal() else 0


def diff_rows(document: Row) -> list[dict[str, Any]]:
    """The tables of a comparison that `wap_diff` has written, those with most changes first."""
    rows = sorted(
        document["tables"],
        key=lambda one: (-_changed(one), one["schema"], one["name"]),
    )
    return [
        {
            "table": f"{one['schema']}.{one['name']}",
            "change": one["change"],
            "added": one["rows"]["added"],
            "removed": one["rows"]["removed"],
            "changed": one["rows"]["changed"],
            "columns with changed values": ", ".join(
                f"{name} ({count:,})" for name, count in one["columns"]["changed"].items()
            ),
            "notes": "; ".join(one["notes"]),
        }
        for one in rows
    ]


def diff_samples(table: Row) -> list[dict[str, Any]]:
    """The sample rows of a table in a stored comparison, with old and new values."""
    found = []
    for sample in table["samples"]:
        before, after = sample["before"] or {}, sample["after"] or {}
        names = [*before, *(name for name in after if name not in before)]
        found.append({"change": sample["change"], **{n: _moved(before, after, n) for n in names}})
    return found


def is_stale(document: Row, nodes: Iterable[Row]) -> bool:
    """Whether a branch was built again since a stored comparison of it."""
    at = datetime.fromisoformat(document["at"])
    return any(row["built_at"] is not None and row["built_at"] > at for row in nodes)


def _changed(table: Row) -> int:
    return int(table["rows"]["added"] + table["rows"]["removed"] + table["rows"]["changed"])


def _moved(before: Row, after: Row, name: str) -> str:
    if not before or not after or before.get(name) == after.get(name):
        return format_value((after or before).get(name))
    return f"{format_value(before.get(name))} → {format_value(after.get(name))}"
