"""Watching `main`: what readers see of the lake, what of it moved, and putting it back.

A look is one query of the catalog where that is a database, and a request or two for each table
where it is a server; metadata is read only of what moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.planning import Differs, Load, snapshot_words
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA, is_publish_tag, publish_of_abort_tag
from sparkwap.gate.net import GONE, MAIN, NEW, REPLACED, MainChange, Writer
from sparkwap.publish.rollback import restore, with_helpers_of

if TYPE_CHECKING:
    from sparkwap.ledger.ledger import Ledger

_DEFINITION = ("current-schema-id", "default-spec-id", "default-sort-order-id", "location")


@dataclass(frozen=True, slots=True)
class Face:
    """What readers see of a table or view, and by what its gate goes.

    Attributes:
        kind: ``table`` or ``view``.
        identity: The UUID; of a view its metadata file, as every change of it is one of its text.
        main: The current snapshot.
        definition: Schema, layout and place.
        receipts: The tags that publishes and rollbacks have left, with their snapshots.
        gated: Whether the property is on that keeps an audit branch's rows off ``main``.
    """

    kind: str
    identity: str
    main: int | None = None
    definition: tuple[Any, ...] = ()
    receipts: Mapping[str, int] | None = None
    gated: bool = False


def face(row: Pointer, load: Load) -> Face:
    """What readers see of a row."""
    if row.kind == "view":
        return Face("view", row.location)
    document = load(row.location)
    receipts = {
        name: ref.snapshot_id for name, ref in md.refs_of(document).items() if _is_receipt(name)
    }
    return Face(
        "table",
        md.identity(document),
        md.main_of(document),
        tuple(document.get(key) for key in _DEFINITION),
        receipts,
        md.properties_of(document).get(md.WAP_ENABLED, "").lower() == "true",
    )


def differences(before: Face | None, after: Face | None) -> tuple[str, ...]:
    """What is not as it was, in words; new receipts and a gate that is switched on do no harm."""
    if before is None or after is None:
        return () if before is after else (NEW if before is None else GONE,)
    if (before.kind, before.identity) != (after.kind, after.identity):
        return (REPLACED,)
    lost = {
        name
        for name, snapshot in (before.receipts or {}).items()
        if (after.receipts or {}).get(name) != snapshot
    }
    told = {
        MAIN: before.main != after.main,
        "its schema or layout": before.definition != after.definition,
        f"the tags {', '.join(sorted(lost))}": bool(lost),
        f"its property {md.WAP_ENABLED}": before.gated and not after.gated,
    }
    return tuple(what for what, differs in told.items() if differs)


class Watch:
    """Looks at ``main`` of the lake again and again.

    Args:
        store: The catalog.
        ledger: Gives the ledger, which knows what was published.
        project: Tables and views of the project: these count whether they are gated or not, and
            on a REST catalog only these and what `name` tells are looked at.
        run_id: The run that watches.
        branch: Its audit branch, whose side schemas no reader sees.
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
        """Watch these too, from now on: for catalogs that cannot be looked at as a whole."""
        new = set(identifiers) - self._named
        self._named |= new
        if new and not self._store.backend.takes_files:
            self._rows |= self._store.backend.find(new)

    def changes(
        self, about: Collection[Identifier] | None = None
    ) -> list[tuple[MainChange, Pointer | None, Pointer | None]]:
        """What of the watched tables and views is not as it was; with the rows before and now.

        Args:
            about: Look at no others, where each costs a request; None for all.
        """
        asked = (
            None if about is None or self._store.backend.takes_files else self._named & set(about)
        )
        now = self._look(asked)
        known = self._rows if asked is None else self._rows.keys() & asked
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
        """What stands there now; None for nothing."""
        return self._store.backend.get(identifier)

    def accept(self, identifier: Identifier, row: Pointer | None) -> None:
        """Take what stands there for what has to be there from now on."""
        if row is None:
            self._rows.pop(identifier, None)
        else:
            self._rows[identifier] = row

    def put_back(
        self, identifier: Identifier, before: Pointer | None, own: Collection[int]
    ) -> Pointer | None:
        """Give readers back what they saw of a table or view, but for what others have done since.

        In one compare and swap, from what stands there then; the files of what goes stay.

        Args:
            identifier: The table or view.
            before: Its row at the last look; None for nothing.
            own: The snapshots that came to ``main`` and have to go.

        Returns:
            Its row then.

        Raises:
            Differs: Others have written on it since, or what it was is gone for good.
            CatalogError: Other writers were faster each time.
        """

        def stage() -> Staged[Pointer | None]:
            live = self._store.backend.get(identifier)
            if before is None:
                return Staged(None, [PointerUpdate(live, None)] if live else [])
            if live is None:
                self._require_there(before)
                moved = next(
                    (r for r in self._look().values() if r.location == before.location), None
                )
                return Staged(before, [PointerUpdate(moved, before)])
            if live.location == before.location:
                return Staged(before)
            now, then = face(live, self._store.load), face(before, self._store.load)
            if (now.kind, now.identity) != (then.kind, then.identity):
                self._require_there(before)
                return Staged(before, [PointerUpdate(live, before)])
            document, former = self._store.load(live.location), self._store.load(before.location)
            change = put_back(identifier, document, former, own)
            swaps, files = self._store.grow([(live, change)])
            return Staged(swaps[0].after, swaps, files)

        self._store.commit(stage, "rollback", table=".".join(identifier))
        # A REST catalog writes the metadata file itself.
        row = self._store.backend.get(identifier)
        self.accept(identifier, row)
        return row

    def _look(self, asked: Collection[Identifier] | None = None) -> dict[Identifier, Pointer]:
        rows = self._store.backend
        if not rows.takes_files:
            return rows.find(self._named if asked is None else asked)
        return {r.identifier: r for r in rows.all() if not r.identifier[0].endswith(self._suffix)}

    def _change(
        self, name: Identifier, before: Pointer | None, after: Pointer | None
    ) -> MainChange | None:
        load = self._store.load
        if before is None and name not in self._project:
            return None
        try:
            was = face(before, load) if before else None
        except CatalogError:
            # Dropped with its files, or a log of metadata that was cut.
            was = Face("table", "") if after is None else None
        if before is not None and (was is None or not self._counts(name, was, after)):
            return None
        what = differences(was, face(after, load) if after else None)
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
            self._writers(old, document, came(old, document)),
            self._seen(after),
            self._writers(old, document, passed(old, document)),
        )

    def _counts(self, name: Identifier, was: Face, after: Pointer | None) -> bool:
        ledger = name[0] == LEDGER_SCHEMA
        gone = after is None and not was.identity
        return was.gated or ledger or gone or name in self._project

    def _new_writers(self, after: Pointer | None) -> tuple[Writer, ...]:
        if after is None or after.kind == "view":
            return ()
        document = self._store.load(after.location)
        return self._writers(None, document, came(None, document))

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
                # Anybody can make a tag; of this run's own rows the ledger has to know it.
                foreign = summary.get("wap_run") != self._run_id
                published = foreign or self._is_published(int(one["snapshot-id"]))
            found.append(
                Writer(
                    int(one["snapshot-id"]),
                    summary.get("wap_run"),
                    summary.get("app-id") or summary.get("spark.app.id"),
                    int(one["timestamp-ms"]),
                    published,
                )
            )
        return tuple(found)

    def _seen(self, row: Pointer | None) -> str:
        """What readers see of a row, in words."""
        if row is None:
            return "no such table"
        if row.kind == "view":
            return f"the view at {row.location}"
        document = self._store.load(row.location)
        main = md.main_of(document)
        snapshot = md.snapshot(document, main) if main is not None else None
        if snapshot is None:
            return "it empty"
        rows = (snapshot.get("summary") or {}).get("total-records")
        return snapshot_words(main) + (f" of {int(rows):,} rows" if rows is not None else "")

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
        except (CatalogError, FileNotFoundError) as error:
            expected = f"metadata {row.location}"
            found = "that it is gone, as after a purge"
            raise Differs(row.identifier, "what it was", expected, found) from error


def came(old: md.Document | None, document: md.Document) -> list[md.Document]:
    """The snapshots that came to ``main``, newest first: those that it did not grow out of before.

    What was on another branch before counts, too.
    """
    before = (
        {one["snapshot-id"] for one in md.ancestors(old, md.main_of(old))}
        if old is not None
        else set()
    )
    found = []
    for snapshot in md.ancestors(document, md.main_of(document)):
        if snapshot["snapshot-id"] in before:
            break
        found.append(snapshot)
    return found


def passed(old: md.Document, document: md.Document) -> list[md.Document]:
    """The snapshots that were current since the last look, and that ``main`` has left again."""
    there = {one["snapshot-id"] for one in (*came(None, old), *came(old, document))}
    ids = [one for one in _current_since(old, document) if one not in there]
    found = [md.snapshot(document, one) for one in dict.fromkeys(ids)]
    return [one for one in found if one is not None]


def _current_since(old: md.Document, document: md.Document) -> list[int]:
    since = int(old.get("last-updated-ms") or 0)
    log = document.get("snapshot-log") or ()
    return [int(one["snapshot-id"]) for one in log if one["timestamp-ms"] > since]


def put_back(
    identifier: Identifier, document: md.Document, old: md.Document, own: Collection[int]
) -> MetadataChange:
    """The change after which readers see what they saw before a run's own hand.

    What others have written since stays.

    Args:
        identifier: The table.
        document: Its metadata today.
        old: Its metadata at the last look.
        own: The snapshots that came to ``main`` and have to go.

    Raises:
        Differs: Others have written on what has to go, or what readers saw is gone.
    """
    line = [int(one["snapshot-id"]) for one in came(old, document)]
    others = [one for one in line if one not in own]
    if others and set(line[: len(line) - len(others)]) != set(own) & set(line):
        raise Differs(
            identifier,
            md.MAIN,
            f"nothing on {snapshot_words(max(set(own) & set(line), key=line.index))}",
            f"{snapshot_words(others[0])} of another writer",
        )
    moved_definition = any(document.get(key) != old.get(key) for key in _DEFINITION)
    if moved_definition and others:
        expected = "that nobody else wrote"
        raise Differs(identifier, "definition", expected, snapshot_words(others[0]))
    main = others[0] if others else _last_of_others(document, old, own)
    change = MetadataChange(document)
    if moved_definition:
        restored = with_helpers_of(document, restore(document, old, document))
        change = difference(document, restored)
    if main is None:
        change = change.remove_refs(md.MAIN)
    elif md.snapshot(document, main) is None:
        raise Differs(identifier, md.MAIN, snapshot_words(main), "that it has expired")
    else:
        change = change.branch(md.MAIN, main)
    for name, ref in (old.get("refs") or {}).items():
        if _is_receipt(name) and md.snapshot(document, ref["snapshot-id"]) is not None:
            change = change.tag(name, ref["snapshot-id"], ref.get("max-ref-age-ms"))
    if md.properties_of(old).get(md.WAP_ENABLED) == "true":
        change = change.properties({md.WAP_ENABLED: "true"})
    return change


def _last_of_others(document: md.Document, old: md.Document, own: Collection[int]) -> int | None:
    """Where ``main`` was before a run set it back: as others left it, or as it was at first."""
    before = {one["snapshot-id"] for one in md.ancestors(old, md.main_of(old))}
    found = [one for one in _current_since(old, document) if one not in {*before, *own}]
    return found[-1] if found else md.main_of(old)


def _is_receipt(name: str) -> bool:
    return is_publish_tag(name) or publish_of_abort_tag(name) is not None
