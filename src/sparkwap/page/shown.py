"""What the page shows: decided from plain rows, without Streamlit, Spark or a catalog. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.diff.model import SchemaChange

Row = Mapping[str, Any]

_SHORT_TEXT = 160
_OPEN_ENDS = ("9999", "2999")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])")


# Verdicts and statuses


@dataclass(frozen=True, slots=True)
class Look:
    """How a verdict or status looks: never by its colour alone.

    Attributes:
        mark: A sign before the word.
        colour: Of bars and words; told apart, as blue, amber and dark red, also by people who see
            no red or no green, and by how dark they are.
    """

    mark: str
    colour: str


VERDICTS: Mapping[str, Look] = {
    "published": Look("✔", "#0072B2"),
    "held": Look("◆", "#E69F00"),
    "rejected": Look("✖", "#8C1D40"),
}
"""The verdicts of the gate, in the order in which they are drawn."""

OUTCOMES: Mapping[str, Look] = {
    **VERDICTS,
    "partial": Look("◐", "#56B4E9"),
    "discarded": Look("⊘", "#7F7F7F"),
    "died": Look("†", "#4D4D4D"),
    "rolled back": Look("↩", "#5E4FA2"),
    "partly rolled back": Look("↩", "#9E9AC8"),
}
"""The outcomes of runs."""

STATUSES: Mapping[str, Look] = {
    "pass": Look("✔", "#0072B2"),
    "warn": Look("▲", "#E69F00"),
    "fail": Look("✖", "#8C1D40"),
    "error": Look("✹", "#CC79A7"),
    "skipped": Look("–", "#A6A6A6"),
}
"""dbt's statuses of tests."""

_TROUBLE = {
    "died": "died",
    "rolled back": "was rolled back",
    "partly rolled back": "was rolled back in part",
}
_NOT_RUN = "skipped"
_PLAIN = Look("·", "#7F7F7F")


def look_of(word: str | None) -> Look:
    """How a verdict, outcome or status looks; plain for any other word."""
    return {**STATUSES, **OUTCOMES}.get(word or "", _PLAIN)


def marked(word: str | None) -> str:
    """A verdict, outcome or status with its sign."""
    return f"{look_of(word).mark} {word or 'unknown'}"


# Words for times and numbers


def when(at: datetime | None) -> str:
    """A time, in UTC."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(since: datetime | None, now: datetime) -> str:
    """How long ago something was."""
    if since is None:
        return "of unknown age"
    seconds = int((now - since).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{counted(seconds // length, unit)} old"
    return "less than a minute old"


def lasted(seconds: float | None) -> str:
    """How long something took."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def counted(count: int, noun: str) -> str:
    """A number of things."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def plain(text: str) -> str:
    """A text as Markdown that shows it as it is: no image, link, formula or markup of its own."""
    return _MARKUP.sub(r"\\\1", text)


def short(text: str | None, limit: int = _SHORT_TEXT) -> str:
    """A text on one line, cut."""
    one = " ".join((text or "").split())
    return one if len(one) <= limit else one[: limit - 1] + "…"


# Runs


@dataclass(frozen=True, slots=True)
class RunShown:
    """A run with what the gate said of its tables."""

    run_id: str
    short: str
    started: datetime | None
    command: str
    target: str
    branch: str
    outcome: str
    counts: Mapping[str, int]
    seconds: float | None
    message: str

    @property
    def label(self) -> str:
        """What it is called where it is chosen."""
        return f"{when(self.started)}  {self.short}  {self.command}, {self.outcome}"


def runs(
    rows: Iterable[Row], nodes: Iterable[Row], ended_otherwise: Mapping[str, str] | None = None
) -> list[RunShown]:
    """The runs, newest first.

    Args:
        rows: Rows of the ledger's ``runs``.
        nodes: Rows of its ``nodes``.
        ended_otherwise: What became of runs after they had ended, by run id.
    """
    later = ended_otherwise or {}
    verdicts: dict[str, Counter[str]] = {}
    for node in nodes:
        verdicts.setdefault(node["run_id"], Counter())[node["verdict"] or "unknown"] += 1
    found = [
        RunShown(
            run_id=row["run_id"],
            short=short_run_id(row["run_id"]),
            started=row["started_at"] or row["ended_at"],
            command=row["command"] or "",
            target=row["target"] or "",
            branch=row["branch"] or "",
            outcome=later.get(row["run_id"]) or row["outcome"] or "unknown",
            counts=dict(verdicts.get(row["run_id"], {})),
            seconds=_seconds(row),
            message=short(row["message"]),
        )
        for row in rows
    ]
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda run: run.started or oldest, reverse=True)


def _seconds(row: Row) -> float | None:
    if row["started_at"] is None or row["ended_at"] is None:
        return None
    return float((row["ended_at"] - row["started_at"]).total_seconds())


def _axis(at: datetime | None, run_id: str) -> str:
    """A run on an axis, which shows what is before the dot; the rest parts those of a minute."""
    return f"{when(at)[:16]} · {short_run_id(run_id)}"


def verdict_bars(found: Sequence[RunShown]) -> list[dict[str, Any]]:
    """One entry for each run and verdict, oldest run first, for a bar chart."""
    return [
        {
            "run": _axis(run.started, run.run_id),
            "started": when(run.started),
            "command": run.command,
            "verdict": verdict,
            "order": order,
            "tables": run.counts[verdict],
        }
        for run in reversed(found)
        for order, verdict in enumerate(VERDICTS)
        if run.counts.get(verdict)
    ]


def durations(found: Sequence[RunShown]) -> list[dict[str, Any]]:
    """What each run took, oldest first; runs that built or tested nothing are left out."""
    return [
        {
            "run": _axis(run.started, run.run_id),
            "started": when(run.started),
            "seconds": round(run.seconds, 1),
            "took": lasted(run.seconds),
            "outcome": run.outcome,
            "command": run.command,
        }
        for run in reversed(found)
        if run.seconds is not None and run.counts
    ]


def tables_of_run(
    run_id: str, nodes: Iterable[Row], told: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What became of the tables of a run: rejected first, then held.

    Args:
        run_id: The run.
        nodes: Rows of the ledger's ``nodes``.
        told: The reason of a node as it may be shown, by node id.
    """
    order = {"rejected": 0, "held": 1, "published": 2}
    own = [row for row in nodes if row["run_id"] == run_id]
    own.sort(key=lambda row: (order.get(row["verdict"], 3), row["schema"] or "", row["name"] or ""))
    return [
        {
            "verdict": marked(row["verdict"]),
            "table": f"{row['schema']}.{row['name']}",
            "kind": row["resource_type"] or "",
            "built": row["how"] or "",
            "took": lasted(row["seconds"]),
            "why": told.get(row["node_id"], row["reason"] or ""),
        }
        for row in own
    ]


def rates(found: Sequence[RunShown]) -> dict[str, int]:
    """How many tables got which verdict in some runs."""
    total: Counter[str] = Counter()
    for run in found:
        total.update(run.counts)
    return {verdict: total.get(verdict, 0) for verdict in VERDICTS}


# Tests


def tests_over_runs(
    tests: Iterable[Row], *, failed_only: bool, text: str = ""
) -> list[dict[str, Any]]:
    """Each result of each test, for a grid of tests by runs, oldest first.

    Args:
        tests: Rows of the ledger's ``tests``.
        failed_only: Only tests that did not pass at least once.
        text: Only tests with this in their names.
    """
    rows = [row for row in tests if text.lower() in (row["test_name"] or "").lower()]
    bad = {row["test_id"] for row in rows if row["status"] not in ("pass", _NOT_RUN)}
    rows = [row for row in rows if not failed_only or row["test_id"] in bad]
    rows.sort(key=lambda row: (row["executed_at"], row["test_id"]))
    return [
        {
            "test": row["test_name"] or row["test_id"],
            "test_id": row["test_id"],
            "run": _axis(row["executed_at"], row["run_id"]),
            "at": when(row["executed_at"]),
            "status": row["status"] if row["status"] in STATUSES else "skipped",
            "mark": look_of(row["status"]).mark,
            "failures": row["failures"],
            "took": lasted(row["seconds"]),
            "severity": row["severity"] or "",
        }
        for row in rows
    ]


def worst_tests(tests: Iterable[Row]) -> list[dict[str, Any]]:
    """Each test with how often it passed and what it says now; the worst first.

    A result that was skipped counts neither way; without another one there is no rate.
    """
    by_test: dict[str, list[Row]] = {}
    for row in tests:
        by_test.setdefault(row["test_id"], []).append(row)
    found = []
    for results in by_test.values():
        results.sort(key=lambda row: row["executed_at"])
        ran = [row for row in results if row["status"] != _NOT_RUN]
        passed = sum(row["status"] == "pass" for row in ran)
        last = results[-1]
        found.append(
            {
                "now": marked(last["status"]),
                "test": last["test_name"] or last["test_id"],
                "results": len(ran),
                "passed": passed,
                "pass rate": passed / len(ran) if ran else None,
                "failures now": last["failures"],
                "last": when(last["executed_at"]),
            }
        )
    return sorted(
        found, key=lambda one: (2.0 if one["pass rate"] is None else one["pass rate"], one["test"])
    )


def metric_names(metrics: Iterable[Row]) -> list[str]:
    """The metrics of the anomaly audits: ``schema.table metric``, with its scope if it has one."""
    return sorted({_metric_name(row) for row in metrics})


def metric_points(metrics: Iterable[Row], name: str) -> list[dict[str, Any]]:
    """The values of a metric and what was expected, oldest first."""
    rows = sorted(
        (row for row in metrics if _metric_name(row) == name and row["value"] is not None),
        key=lambda row: row["measured_at"],
    )
    return [
        {
            "at": row["measured_at"].isoformat(),
            "measured": when(row["measured_at"]),
            "value": row["value"],
            "low": row["low"],
            "high": row["high"],
            "state": row["state"] or "",
        }
        for row in rows
    ]


def _metric_name(row: Row) -> str:
    scope = f" where {row['scope']}" if row["scope"] else ""
    return f"{row['schema']}.{row['name']}  {row['metric']}{scope}"


# Branches


def commands(branch: str, verdicts: Collection[str], loaded: bool = False) -> list[tuple[str, str]]:
    """The commands that go on from an open branch: what each does, and how it is typed.

    Args:
        branch: The branch.
        verdicts: Those of its tables.
        loaded: Whether another program than dbt has written a table of it: no build makes its rows.
    """
    found = []
    if not verdicts or ("rejected" in verdicts and not loaded):
        found.append(("after a fix, build again", next_command.dbt("build", branch=branch)))
    if verdicts and "rejected" not in verdicts:
        found.append(("audit again and publish", next_command.dbt("test", branch=branch)))
        found.append(("publish as audited", next_command.operation("wap_publish", branch)))
    found.append(("every row that differs", next_command.operation("wap_diff", branch)))
    found.append(("drop it", next_command.operation("wap_discard", branch)))
    return found


def unpublishable(verdicts: Collection[str | None], in_use: bool) -> str:
    """Why an open branch cannot be published now; empty if it can be asked for.

    Args:
        verdicts: Those of its tables.
        in_use: Whether a run is at work on it.
    """
    if in_use:
        return "A run is building on it; wait until it has ended."
    if not verdicts or None in verdicts:
        return (
            "Its run did not end, so the gate has said nothing of it. Build again, or discard it."
        )
    if "rejected" in verdicts:
        return "The gate has rejected it. Mend what is said above and build again, or discard it."
    return ""


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that waits for somebody.

    Attributes:
        at: Since when; None if that is not known.
        what: One line.
        view: The view of the page that has more of it.
    """

    at: datetime | None
    what: str
    view: str


def attention(
    branches: Iterable[tuple[str, datetime | None, Collection[str | None], bool]],
    found: Iterable[RunShown],
    waiting: Iterable[tuple[str, int]],
) -> list[Attention]:
    """What needs somebody, newest first; what has no time comes last.

    Args:
        branches: Of each open branch its name, age, verdicts, and whether a run is at work on it.
        found: The runs.
        waiting: Tables with rows in quarantine, and how many.
    """
    items = []
    for name, since, verdicts, in_use in branches:
        if not in_use:
            worst = "rejected" if "rejected" in verdicts else "held"
            state = worst if verdicts and None not in verdicts else "left by a run that did not end"
            items.append(Attention(since, f"The branch {name} is {state}", "Branches"))
    items += [
        Attention(run.started, f"The run {run.short} ({run.command}) {verb}", "Runs")
        for run in found
        if (verb := _TROUBLE.get(run.outcome))
    ]
    items += [
        Attention(None, f"{counted(rows, 'row')} of {table} in quarantine", "Quarantine")
        for table, rows in waiting
        if rows
    ]
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(items, key=lambda one: one.at or oldest, reverse=True)


def branch_rows(nodes: Iterable[Row], differences: Iterable[Compared]) -> list[dict[str, Any]]:
    """The tables of an open branch: verdict, rows and columns against ``main``.

    Args:
        nodes: The branch's latest rows in the ledger's ``nodes``.
        differences: The branch compared with ``main``.
    """
    verdicts = {f"{row['schema']}.{row['name']}": row["verdict"] for row in nodes}
    order = {"rejected": 0, "held": 1}
    rows = sorted(differences, key=lambda one: (order.get(verdicts.get(one.name, ""), 2), one.name))
    return [
        {
            "verdict": marked(verdicts.get(one.name) or "none: its run did not end"),
            "table": one.name,
            "rows on main": one.old.rows if one.old else None,
            "rows here": one.new.rows if one.new else None,
            "change": one.told,
            "written": one.written,
        }
        for one in rows
    ]


def whys(nodes: Iterable[Row], told: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Why tables are not published, each reason with its tables: first those of rejected ones.

    Args:
        nodes: Rows of the ledger's ``nodes``.
        told: The reason of a node as it may be shown, by node id.
    """
    order = {"rejected": 0, "held": 1}
    found: dict[str, list[str]] = {}
    for row in sorted(nodes, key=lambda row: (order.get(row["verdict"], 2), row["name"] or "")):
        reason = told.get(row["node_id"], row["reason"] or "")
        if reason and row["verdict"] in order:
            found.setdefault(reason, []).append(f"{row['schema']}.{row['name']}")
    return list(found.items())


# Two states of the lake


@dataclass(frozen=True, slots=True)
class Side:
    """A table as one of two states has it.

    Attributes:
        kind: ``table`` or ``view``.
        place: Whether it is the table itself, or an object of a side schema.
        rows: How many rows, where metadata tells it.
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
class Compared:
    """How a table of two states of the lake differs.

    Attributes:
        name: Schema and table.
        new: The new state; None where it is not there.
        old: The old one.
        columns: How the columns differ.
        same: Whether both are one and the same snapshot.
        commits: The summaries of the snapshots of the new state that are not the old one's.
    """

    name: str
    new: Side | None
    old: Side | None
    columns: SchemaChange
    same: bool
    commits: Sequence[Mapping[str, str]] = field(default_factory=tuple)

    @property
    def told(self) -> str:
        """What differs, in few words."""
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
        """What its commits wrote, by their own summaries."""
        added = sum(_number(one, "added-records") for one in self.commits)
        deleted = sum(_number(one, "deleted-records") for one in self.commits)
        if not self.commits:
            return ""
        how = ", ".join(sorted({str(one.get("operation", "")) for one in self.commits} - {""}))
        return f"{counted(len(self.commits), 'commit')} ({how}): {added:,} in, {deleted:,} out"


def schema_lines(change: SchemaChange) -> list[str]:
    """A change of columns in words, one line for each column."""
    return [
        *(f"column {one.name} added ({one.type})" for one in change.added),
        *(f"column {one.name} removed ({one.type})" for one in change.removed),
        *(f"column {one.name} was {one.before}, is {one.after}" for one in change.retyped),
        *(f"column {one.before} is called {one.after}" for one in change.renamed),
    ]


def comparison_rows(found: Iterable[Compared]) -> list[dict[str, Any]]:
    """Two states of the lake, one line for each table; those that differ first."""
    rows = sorted(found, key=lambda one: (one.same, one.name))
    return [
        {
            "table": one.name,
            "change": one.told,
            "rows left": one.old.rows if one.old else None,
            "rows right": one.new.rows if one.new else None,
            "written": one.written,
            "snapshot left": _snapshot(one.old),
            "snapshot right": _snapshot(one.new),
        }
        for one in rows
    ]


def column_rows(one: Compared) -> list[dict[str, str]]:
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


def summary_rows(one: Compared) -> list[dict[str, str]]:
    """The snapshot summaries of both sides, side by side."""
    old = one.old.summary if one.old else {}
    new = one.new.summary if one.new else {}
    return [
        {"key": key, "left": str(old.get(key, "—")), "right": str(new.get(key, "—"))}
        for key in sorted({*old, *new})
    ]


def _snapshot(side: Side | None) -> str:
    # As text: more digits than a browser's numbers have.
    return "" if side is None or side.snapshot is None else str(side.snapshot)


def _number(summary: Mapping[str, str], key: str) -> int:
    text = str(summary.get(key, "0"))
    return int(text) if text.isdecimal() else 0


# A full comparison, as `wap_diff` has written it


def diff_rows(document: Row) -> list[dict[str, Any]]:
    """The tables of a stored comparison; those with most changes first."""
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
    """The sample rows of a table in a stored comparison: what was, and what is."""
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
        return _cell((after or before).get(name))
    return f"{_cell(before.get(name))} → {_cell(after.get(name))}"


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)


# Quarantine


def reasons(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows in quarantine by reason, the most frequent first.

    The values that reasons quote are left out: they part what is one trouble, and may be personal.

    Args:
        rows: Of `sparkwap.cli.quarantine.BadRow`.
    """
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(_reason(row.reason or "unknown"), []).append(row)
    found = [
        {
            "reason": reason,
            "rows": len(own),
            "files": len({row.file for row in own}),
            "first": f"{min(own).file}, line {min(own).line}",
        }
        for reason, own in groups.items()
    ]
    return sorted(found, key=lambda one: (-one["rows"], one["reason"]))


def _reason(text: str) -> str:
    # "amount is not a decimal(12,2): 12,x": the value comes behind the colon.
    return _QUOTED.sub("…", text.partition(": ")[0])


# Versions of a key


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key.

    Attributes:
        number: From 1, oldest first.
        start: When it began; None if that is not known.
        end: When it ended; None if it is current.
        changed: The shown columns that differ from the version before.
        values: The shown columns.
    """

    number: int
    start: datetime | None
    end: datetime | None
    changed: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def what(self) -> str:
        """How it began, in words."""
        if self.number == 1:
            return "first version"
        return f"changed: {', '.join(self.changed)}" if self.changed else "no shown column changed"


def versions(rows: Sequence[Row], start: str, end: str, hidden: Collection[str]) -> list[Version]:
    """The versions of a key.

    Args:
        rows: Its rows, oldest first.
        start: The column with the beginning of a version.
        end: The column with its end.
        hidden: Columns, in lower case, whose values are not shown.
    """
    found: list[Version] = []
    before: Mapping[str, str] | None = None
    for number, row in enumerate(rows, start=1):
        values = {
            name: _cell(value)
            for name, value in row.items()
            if name not in (start, end) and name.lower() not in hidden and not _technical(name)
        }
        changed = tuple(n for n, v in values.items() if before is not None and before.get(n) != v)
        found.append(Version(number, _moment(row[start]), _end(row[end]), changed, values))
        before = values
    return found


def timeline(found: Sequence[Version], now: datetime) -> list[dict[str, Any]]:
    """The bars of some versions; a current one goes on until now."""
    begun = [one.start for one in found if one.start is not None]
    earliest = min(begun, default=now)
    return [
        {
            "version": f"version {one.number}",
            "number": one.number,
            "start": (one.start or earliest).isoformat(),
            "end": max(one.end or now, one.start or earliest).isoformat(),
            "valid_from": when(one.start) or "unknown",
            "valid_to": when(one.end) or "today: it is current",
            "state": "ended" if one.end else "current",
            "what": one.what,
        }
        for one in found
    ]


def _technical(name: str) -> bool:
    """Whether a column is about the version, and not about the thing."""
    known = (
        "is_current", "version", "change_flag", "row_hash", "version_key", "loaded_at", "as_of",
    )  # fmt: skip
    return name.startswith(("_", "dbt_")) or name in known


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        return _moment(datetime.fromisoformat(value))
    return None


def _end(value: Any) -> datetime | None:
    # A far day stands for "not yet" in some tables.
    return None if str(value).startswith(_OPEN_ENDS) else _moment(value)
