"""Finds the rows that a comparison has to read: no rows, the files that differ, or both states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparkwap.catalog import content_equality
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import FilePlan, plan_files
from sparkwap.catalog.private_catalog import PrivateCatalog
from sparkwap.catalog.snapshot_files import Part, Snapshot, Unreadable, common_manifests
from sparkwap.core.errors import CatalogError
from sparkwap.core.sqltext import literal, quote
from sparkwap.diff.model import How
from sparkwap.diff.plan import Columns
from sparkwap.diff.row_lineage import RowLineage, lineage_since
from sparkwap.diff.sql import Source
from sparkwap.diff.states import TableVersion
from sparkwap.publish.lake import Lake

_AT_ONCE = 2_000_000  # rows up to which it is cheaper to shuffle values than to scan twice


@dataclass
class Sources:
    """The sources of the rows of one table, and the files to delete after the comparison.

    Attributes:
        sources: The relations to read.
        parts: Private tables of some files, written for the comparison.
        folders: Folders of private tables, written for the comparison.
        lineage: The files that differ, if row ids tell which of their rows differ.
    """

    sources: list[Source] = field(default_factory=list)
    how: How = "metadata"
    parts: list[Part] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    lineage: RowLineage | None = None

    @property
    def rows(self) -> int | None:
        """An upper bound of the number of rows; None if it is not known."""
        counts = [source.rows for source in self.sources]
        return None if None in counts else sum(n for n in counts if n is not None)

    @property
    def at_once(self) -> bool:
        """Whether one scan that shuffles all values is cheaper than two scans."""
        return self.rows is not None and self.rows <= _AT_ONCE

    @property
    def by_branch(self) -> bool:
        """Whether the session has to change its branch to see all rows."""
        return any(source.branch is not None for source in self.sources)


class SourceFinder:
    """Finds the sources of the rows of two states of a table."""

    def __init__(self, lake: Lake, private: PrivateCatalog) -> None:
        self._lake = lake
        self._private = private

    def find(
        self, before: TableVersion, after: TableVersion, columns: Columns, found: Sources
    ) -> None:
        """Add the sources to ``found``, which keeps the files to delete also after an error."""
        if "view" in (before.kind, after.kind):
            found.how = "whole"
            found.sources = [self._whole(after, 1), self._whole(before, -1)]
            return
        if columns.same_files and _same_rows(before, after):
            return
        try:
            comparable = columns.same_files and before.snapshot and after.snapshot
            if comparable and self._parts(before, after, found):
                return
        except (CatalogError, OSError):
            # The metadata cannot be read here, or the lake is read-only. Reading both states as a
            # whole is slower and gives the same result.
            found.sources.clear()
        found.how = "whole"
        for state, sign in ((after, 1), (before, -1)):
            if state.snapshot is not None:
                found.sources.append(self._whole(state, sign))

    def relation(self, state: TableVersion) -> str:
        """Return the text of a state for a from clause."""
        name = ".".join(map(quote, state.row.identifier))
        if state.kind == "view":
            return name
        version = f" version as of {literal(str(state.ref))}"
        try:
            # A metadata file never changes, so Spark reads the planned state, also if another
            # writer commits meanwhile.
            return self._private.register(state.row.location) + version
        except Exception:
            if self._lake.store.backend.get(state.row.identifier) is None:
                raise
            return name + version

    def _parts(self, before: TableVersion, after: TableVersion, found: Sources) -> bool:
        """Add the files that differ as private tables; return False if these are all files."""
        old, new = (self._snapshot(state) for state in (before, after))
        common = common_manifests(old, new)
        files = old.files(common), new.files(common)
        plan = plan_files(*files)
        sides = (
            (after, new, plan.added, {file.path for file in files[1].data}),
            (before, old, plan.removed, {file.path for file in files[0].data}),
        )
        shared = any(m.has_data and m.path in common for m in new.manifests)
        all_files = not shared and all(paths == listed for *_, paths, listed in sides)
        since = lineage_since(before, after)
        rows = sum(file.rows for one in files for file in one.data)
        copied = plan.added and plan.removed and not (old.has_deletes or new.has_deletes)
        by_ids = since is not None and copied and rows > _AT_ONCE
        if plan.read == "whole" or (all_files and not by_ids):
            return False
        found.how = "files" if plan.read == "parts" else "metadata"
        for state, snapshot, paths, _ in sides:
            sign = 1 if state is after else -1
            if paths:
                found.parts.append(snapshot.part(paths))
                found.sources.append(self._source(found.parts[-1], sign, old=sign < 0))
        self._touched(plan, old, new, found)
        if since is not None and by_ids:
            added, removed = found.sources
            found.lineage = RowLineage(added, removed, since)
        return True

    def _touched(self, plan: FilePlan, old: Snapshot, new: Snapshot, found: Sources) -> None:
        """Add the rows of common files that one of the two states has deleted."""
        for snapshot, sign in ((new, -1), (old, 1)):
            if plan.touched and snapshot.has_deletes:
                found.parts.append(snapshot.part(plan.touched))
                source = self._source(found.parts[-1], sign, old=snapshot is old)
                deleted = snapshot.count("total-position-deletes")
                found.sources.append(replace(source, condition="_deleted", rows=deleted))

    def _source(self, part: Part, sign: int, *, old: bool) -> Source:
        try:
            return Source(self._private.register(part.location), sign, old, rows=part.rows)
        except Exception as error:
            raise Unreadable(f"The session cannot have private tables: {error}") from error

    def _snapshot(self, state: TableVersion) -> Snapshot:
        found = state.found
        if found is None:
            raise Unreadable(f"There is no snapshot {state.snapshot}.")
        return Snapshot(self._lake.store, state.with_schema(), found)

    def _whole(self, state: TableVersion, sign: int) -> Source:
        branch = state.branch if state.kind == "view" else None
        rows = md.count(state.found, "total-records")
        return Source(self.relation(state), sign, sign < 0, branch=branch, rows=rows)


def _same_rows(before: TableVersion, after: TableVersion) -> bool:
    """Return whether metadata proves that two states of a table have the same rows."""
    old, new = before.snapshot, after.snapshot
    if old == new:
        return True
    return any(
        content_equality.same_rows(document, first, second)
        for document in (before.document, after.document)
        for first, second in ((old, new), (new, old))
    )
