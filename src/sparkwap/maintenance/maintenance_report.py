"""What a maintenance has done or would do, as objects and as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkwap.catalog.model import Identifier
from sparkwap.core.text import counted
from sparkwap.maintenance.choice import Choice
from sparkwap.maintenance.compaction import Compacted
from sparkwap.maintenance.history import Outdated

_SHOWN = 40


@dataclass
class TableReport:
    """What a table has, and what was or would be done.

    Attributes:
        name: ``schema.name``.
        files: Number of data files; None if its files were not read.
        readings: Readings in a day.
        done: What the compaction did; None if there was none.
        seconds: How long that took.
        outdated: The parts of its history that are no longer needed.
        compress: Whether its metadata are compressed from now on.
        problem: Why something was not done, in words.
    """

    name: str
    files: int | None = None
    delete_files: int = 0
    bytes: int = 0
    readings: float = 0.0
    choice: Choice | None = None
    done: Compacted | None = None
    seconds: float = 0.0
    outdated: Outdated = field(default_factory=Outdated)
    compress: bool = False
    problem: str | None = None

    @property
    def identifier(self) -> Identifier:
        """Schema and table."""
        schema, _, table = self.name.partition(".")
        return schema, table

    def acts(self, done: bool) -> bool:
        """Return whether something was done with the table, or would be."""
        compacts = self.done if done else self.choice and self.choice.compact
        return bool(compacts or self.outdated != Outdated() or self.compress)


@dataclass
class Report:
    """The result, or the preview, of a maintenance.

    Attributes:
        tables: The tables, those first that gain most.
        budget: Seconds for compactions; None for no limit.
        done: False for a preview, which changes nothing.
        failed: Errors that are not a writer who was faster.
    """

    tables: list[TableReport]
    budget: float | None
    done: bool
    failed: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        """Whether something was done, or would be."""
        return any(one.acts(self.done) for one in self.tables)


def lines(report: Report, *, short: bool = False) -> list[str]:
    """Return a report as lines of text.

    Args:
        short: Leave out the tables with which nothing was done.
    """
    found: list[str] = []
    idle = 0
    for one in report.tables:
        text = _table_lines(one, report.done)
        if text and (one.acts(report.done) or not short):
            found += text
        else:
            idle += 1
    head = "Maintained:" if report.done else "A maintenance would do this (nothing was changed):"
    failed = [f"  failed   {problem}" for problem in report.failed]
    if not found:
        return [head, *failed] if failed else ["There is nothing to maintain."]
    more = len(found) - _SHOWN
    if short and more > 0:
        found = [*found[:_SHOWN], f"  and {more:,} more lines"]
    rest = [f"  {counted(idle, 'other table')} {'need' if idle != 1 else 'needs'} nothing"]
    return [head, *found, *(rest if idle and not short else []), *failed]


def _table_lines(one: TableReport, done: bool) -> list[str]:
    chosen, steps = one.choice, list[str]()
    if one.done is not None:
        before, after = one.done.files, one.done.delete_files
        steps.append(
            f"compacted {counted(before[0], 'file')} into {before[1]:,}"
            + (f", {counted(after[0], 'delete file')} into {after[1]:,}" if after[0] else "")
            + f" in {one.seconds:.1f} s"
        )
    elif one.problem is not None and (done or (chosen and chosen.fact.work)):
        steps.append(f"not compacted: {one.problem}")
    elif chosen is not None and chosen.fact.work is not None:
        steps.append(_words(chosen))
    parts = [
        counted(len(gone), what)
        for gone, what in (
            (one.outdated.snapshots, "old snapshot"),
            (one.outdated.tags, "receipt"),
            (one.outdated.metadata_files, "old metadata file"),
        )
        if gone
    ]
    if parts:
        steps.append(f"{'removed' if done else 'remove'} {', '.join(parts)}")
    if one.compress:
        steps.append(f"its metadata {'are' if done else 'would be'} compressed from now on")
    if not steps:
        return []
    files = "" if one.files is None else counted(one.files, "file")
    deletes = f", {counted(one.delete_files, 'delete file')}" if one.delete_files else ""
    size = f"{one.bytes / 1e6:,.1f} MB"
    head = f"  {one.name}   {files}{deletes}, {size}, read {one.readings:,.0f} times a day"
    return [head, *(f"    {step}" for step in steps)]


def _words(chosen: Choice) -> str:
    work, fact = chosen.fact.work, chosen.fact
    assert work is not None
    if not chosen.compact:
        return f"not compacted: {chosen.reason}"
    what = f"compact {counted(work.files, 'file')} into {work.into:,}" if work.files else ""
    if work.manifests:
        manifests = f"rewrite {counted(work.manifests, 'manifest')}"
        what = f"{what}, {manifests}" if what else manifests
    part = f" ({chosen.reason})" if chosen.reason else ""
    return (
        f"{what}{part}: about {fact.seconds:.1f} s, saves {work.saved:.2f} s for each reading, "
        f"{fact.score:,.1f} s for each second of work"
    )
