"""Watches `main`: finds changes of the state that readers see, and restores it.

A check is one query of a SQL catalog, or one or two requests for each table of other catalogs.
Metadata is read only for tables that have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import same_rows_as
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.planning import Differs, snapshot_words
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.core.names import LEDGER_SCHEMA, is_publish_tag
from sparkwap.gate.net import MainChange, Writer
from sparkwap.runs.visible_state import (
    VisibleState,
    came_to_main,
    differences,
    left_main,
    put_back,
    visible_state,
)

if TYPE_CHECKING:
    from sparkwap.ledger.ledger import Ledger


class Watch:
    """Compares ``main`` of the lake with its state at the last check.

    Args:
        ledger: Returns the ledger, which has all publishes.
        project: The tables and views of the project, which are watched even if not gated. On
            other catalogs than SQL, only these and those of `name` are watched.
        branch: The audit branch of the run; its side schemas are not watched.
    """

    def __init__(
        self,
        store: Store,
        ledger: Callable[[], Ledger],
        project: Collection[Identifier],
        *,
        run_id: str,
        branch: str,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._run_id = run_id
        self._project = frozenset(project)
        self._suffix = f"__{branch}"
        self._named: set[Identifier] = set(project)
        self._rows = self._look()

    def name(self, identifiers: Iterable[Identifier]) -> None:
        """Also watch these from now on; needed where each table costs a request."""
        new = set(identifiers) - self._named
        self._named |= new
        if new and not self.sees_all:
            self._rows |= self._store.backend.find(new)

    @property
    def sees_all(self) -> bool:
        """Whether each check sees all tables, because it is one query."""
        return self._store.backend.atomic

    def changes(
        self, about: Collection[Identifier] | None = None
    ) -> list[tuple[MainChange, Pointer | None, Pointer | None]]:
        """Return the changes of watched tables and views since the last check.

        Args:
            about: Check only these; None for all.

        Returns:
            Each change, with the row before and the present row.
        """
        wanted = None if about is None else self._named & set(about)
        now = self._look(wanted)
        known = self._rows if wanted is None else self._rows.keys() & wanted
        names = {name for name in {*known, *now} if self._rows.get(name) != now.get(name)}
        found = []
        for name in sorted(names):
            before, after = self._rows.get(name), now.get(name)
            change = self._change(name, before, after)
            if change is None:
                self.accept(name, after)
            else:
                found.append((change, before, after))
        return found

    def row(self, identifier: Identifier) -> Pointer | None:
        """Return the present row of a table or view; None if it does not exist."""
        return self._store.backend.get(identifier)

    def accept(self, identifier: Identifier, row: Pointer | None) -> None:
        """Accept a row as the expected state from now on."""
        if row is None:
            self._rows.pop(identifier, None)
        else:
            self._rows[identifier] = row

    def put_back(
        self, identifier: Identifier, before: Pointer | None, own: Collection[int]
    ) -> None:
        """Restore the former state of a table or view, apart from later changes of others.

        This is one compare and swap from the present state. Files of removed states stay.

        Args:
            before: The row at the last check; None if it did not exist.
            own: The snapshots of the run on ``main``, which have to be removed.

        Raises:
            Differs: Others have written on top of the run's changes, or the former files are gone.
        """

        def stage() -> Staged[None]:
            live = self._store.backend.get(identifier)
            if before is None:
                return Staged(None, [PointerUpdate(live, None)] if live else [])
            if live is None:
                self._require_there(before)
                moved = next(
                    (r for r in self._look().values() if r.location == before.location), None
                )
                return Staged(None, [PointerUpdate(moved, before)])
            if live.location == before.location:
                return Staged(None)
            now, then = (
                visible_state(live, self._store.load),
                visible_state(before, self._store.load),
            )
            if (now.kind, now.identity) != (then.kind, then.identity):
                self._require_there(before)
                return Staged(None, [PointerUpdate(live, before)])
            document, former = self._store.load(live.location), self._store.load(before.location)
            change = put_back(identifier, document, former, own)
            swaps, files = self._store.grow([(live, change)])
            return Staged(None, swaps, files)

        self._store.commit(stage, "rollback", table=".".join(identifier))
        # A REST catalog writes the metadata file itself.
        row = self._store.backend.get(identifier)
        # A renamed table came back from its new name, where it is no longer expected.
        self._rows = {
            name: one
            for name, one in self._rows.items()
            if row is None or one.location != row.location
        }
        self.accept(identifier, row)

    def _look(self, wanted: Collection[Identifier] | None = None) -> dict[Identifier, Pointer]:
        rows = self._store.backend
        if not self.sees_all:
            return rows.find(self._named if wanted is None else wanted)
        return {r.identifier: r for r in rows.all() if not r.identifier[0].endswith(self._suffix)}

    def _change(
        self, name: Identifier, before: Pointer | None, after: Pointer | None
    ) -> MainChange | None:
        load = self._store.load
        if before is None and name not in self._project:
            return None
        try:
            was = visible_state(before, load) if before else None
        except MetadataFileMissing:
            # The table was dropped with its files, or Iceberg has deleted the old metadata file.
            was = VisibleState("table", "") if after is None else None
        if before is not None and (was is None or not self._counts(name, was, after)):
            return None
        what = differences(was, visible_state(after, load) if after else None)
        if not what:
            return None
        if before is None or after is None or before.kind == "view" or after.kind == "view":
            return MainChange(name, what, (), self._new_writers(after), self._seen(after))
        old, document = load(before.location), load(after.location)
        since = int(old.get("last-updated-ms") or 0)
        log = [int(step["timestamp-ms"]) for step in document.get("metadata-log") or ()]
        times = {*log, int(document.get("last-updated-ms") or 0)}
        return MainChange(
            name,
            what,
            tuple(sorted(at for at in times if at >= since)),
            self._writers(old, document, came_to_main(old, document)),
            self._seen(after),
            self._writers(old, document, left_main(old, document)),
        )

    def _counts(self, name: Identifier, was: VisibleState, after: Pointer | None) -> bool:
        ledger = name[0] == LEDGER_SCHEMA
        gone = after is None and not was.identity
        return was.gated or ledger or gone or name in self._project

    def _new_writers(self, after: Pointer | None) -> tuple[Writer, ...]:
        if after is None or after.kind == "view":
            return ()
        document = self._store.load(after.location)
        return self._writers(None, document, came_to_main(None, document))

    def _writers(
        self, old: md.Document | None, document: md.Document, snapshots: Iterable[md.Document]
    ) -> tuple[Writer, ...]:
        tagged = {
            ref.snapshot_id
            for name, ref in md.refs_of(document).items()
            if is_publish_tag(name) and name not in md.refs_of(old or {})
        }
        found = []
        published = False
        for one in snapshots:
            summary = one.get("summary") or {}
            if one["snapshot-id"] in tagged:
                # Any writer can create a tag, so a publish of this run must be in the ledger, too.
                foreign = summary.get("wap_run") != self._run_id
                published = foreign or self._is_published(int(one["snapshot-id"]))
            found.append(
                Writer(
                    int(one["snapshot-id"]),
                    summary.get("wap_run"),
                    summary.get("app-id") or summary.get("spark.app.id"),
                    int(one["timestamp-ms"]),
                    published,
                    maintained=one.get("parent-snapshot-id") in same_rows_as(one),
                )
            )
        return tuple(found)

    def _seen(self, row: Pointer | None) -> str:
        """Return the state that readers see of a row, in words."""
        if row is None:
            return "no such table"
        if row.kind == "view":
            return f"the view at {row.location}"
        document = self._store.load(row.location)
        main = md.main_of(document)
        snapshot = md.snapshot(document, main) if main is not None else None
        if snapshot is None:
            return "it empty"
        rows = md.count(snapshot, "total-records")
        return snapshot_words(main) + (f" of {rows:,} rows" if rows is not None else "")

    def _is_published(self, snapshot_id: int) -> bool:
        publishes = self._ledger().publishes()
        return any(entry.candidate == snapshot_id for one in publishes for entry in one.entries)

    def _require_there(self, row: Pointer) -> None:
        try:
            document = self._store.reload(row.location)
            main = md.main_of(document) if row.kind == "table" else None
            snapshot = md.snapshot(document, main) if main is not None else None
            if snapshot is not None:
                self._store.files.read(snapshot["manifest-list"])
        except (MetadataFileMissing, FileNotFoundError) as error:
            expected = f"metadata {row.location}"
            found = "that the file is gone, as after a purge"
            raise Differs(row.identifier, "former state", expected, found) from error
