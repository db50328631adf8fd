"""REST catalogs: changes are posted as requirements and updates.

The server writes all metadata, so that the change itself is posted (`change`). Several tables
change in one request if the server offers that. The caller has to check the result even then,
because such a server need not be atomic (Iceberg's own test server is not).
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import view_updates
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.former import RESTORED_FROM, is_former
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import CannotShare, Conflict, Fate, Pointer, PointerUpdate
from sparkwap.catalog.rest_client import part
from sparkwap.catalog.rest_schemas import RestSchemas
from sparkwap.catalog.vended_keys import OWN_KEYS, VendedKeys
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import FORMER_BRANCH, former_name, side_schema

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

MULTI_TABLE = "wap.multi-table-commit"
"""Catalog property: ``false`` to not use a server's multi-table commit."""

_TRANSACTION = "POST /v1/{prefix}/transactions/commit"
_DOCUMENTS = 500
_ODD_NAME = re.compile(r"[^\w $-]")


class RestBackend(RestSchemas):
    """The tables and views of a REST catalog; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties: ``uri``, ``warehouse``, the properties of the
            authentication and of the file access, and `MULTI_TABLE`.
    """

    takes_files = False

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._keys = VendedKeys(self.get)
        super().__init__(name, properties, self._keys)
        wanted = self.properties.get(MULTI_TABLE, "true").lower() != "false"
        self.together = wanted and _TRANSACTION in self.offered
        own = any(self.properties.get(key) for key in OWN_KEYS)
        self.files = WarehouseFiles(self.properties, None if own else self._keys)
        self._documents: OrderedDict[str, md.Document] = OrderedDict()

    # Reading

    def get(self, identifier: Identifier) -> Pointer | None:
        return self._table(identifier) or self._view(identifier)

    def members(self, schema: str) -> list[Pointer]:
        found = self._threads.map(
            lambda item: (
                self._view((schema, item[0]))
                if item[1] == "view"
                else self._table((schema, item[0]))
            ),
            self.kinds(schema).items(),
        )
        return [row for row in found if row is not None]

    def all(self) -> list[Pointer]:
        return [row for schema in sorted(self.schemas()) for row in self.members(schema)]

    def document(self, location: str) -> md.Document | None:
        with self._lock:
            return self._documents.get(location)

    def pyiceberg(self) -> RestCatalog:
        return self._catalog

    # Writing

    def _begin(
        self,
        swaps: Sequence[PointerUpdate],
        documents: Mapping[str, md.Document],
        made: Callable[[PointerUpdate], None],
    ) -> Sequence[PointerUpdate]:
        changes = [(swap.before, swap.change) for swap in swaps if swap.before and swap.change]
        named = {swap.before.identifier: swap for swap in swaps if swap.before}
        self.evolve(changes, lambda identifier: made(named[identifier]))
        return [swap for swap in swaps if not swap.change]

    def _remove(self, swap: PointerUpdate, row: Pointer) -> None:
        self._require(row)
        if not self._drop(row):
            raise Conflict(swap, f"{'.'.join(row.identifier)} is gone")

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        done = {self._is_made(swap) for swap in swaps}
        if done == {True}:
            return "made"
        return "not made" if done == {False} else "unknown"

    def register(self, row: Pointer) -> None:
        if aside := self._own_aside(row):
            self.rename(aside, row.identifier, "table")
            return
        try:
            self._register(row)
        except CannotShare:
            self.unstage(self.stage(row), row.identifier)

    def unstage(self, staged: Identifier, identifier: Identifier) -> None:
        self.rename(staged, identifier, "table")
        if staged[0] != identifier[0]:
            self._drop_schema(staged[0], must=False)

    def stage(self, row: Pointer) -> Identifier:
        """Register a former table under a name beside its own, before its own name is free.

        So nothing is lost if the server does not take it. A server that still keeps the dropped
        table (Lakekeeper) takes a copy with an identity and a folder of its own, which has the
        same snapshots. A server that wants tables in the folder of their schema (Polaris) takes it
        in the schema where it was built. Else it raises `CannotShare`.
        """
        document = self._read(row.location)
        name = row.identifier[1]
        if aside := self._own_aside(row):
            return aside
        places = self._places(row, document)
        for place in places:
            self.ensure_schema(place[0], _branch_of(row.identifier[0], place[0]))
            try:
                self._staged(Pointer(place, "table", row.location), row)
                return place
            except CannotShare:
                self._drop_schema(place[0], must=False)
        side = places[0][0]
        self.ensure_schema(side, FORMER_BRANCH)
        folder = self.folder(side) or str(document["location"]).rpartition("/")[0]
        copy = md.with_own_folder(
            document, f"{folder}/{name}-{uuid.uuid4().hex[:8]}", {RESTORED_FROM: row.location}
        )
        location = md.next_location(copy, None)
        self.files.write(location, md.dump(copy))
        try:
            self._staged(Pointer(places[0], "table", location), row)
        except CannotShare:
            self.files.delete(location)
            self._drop_schema(side, must=False)
            raise
        return places[0]

    def forget_staged(self, row: Pointer) -> None:
        try:
            places = self._places(row, self._read(row.location))
        except FileNotFoundError:
            return
        for place in {*places, _aside(row.identifier, row.location)}:
            found = self._table(place)
            if found is not None and self._is_former(found, row):
                self._drop(found)
                if place[0] != row.identifier[0]:
                    self._drop_schema(place[0], must=False)

    def set_aside(self, row: Pointer, key: str) -> Pointer | None:
        if row.kind == "view":
            return super().set_aside(row, key)
        # No request drops a table on the condition that it is the one that was read. A rename to a
        # fixed name fails if another process has made it, and can be undone.
        aside = _aside(row.identifier, key)
        self._rename(row.identifier, aside, "table", lambda: self._require(row))
        found = self._table(aside)
        if found is None or found.location != row.location:
            self.rename(aside, row.identifier, "table")
            raise Conflict(None, f"{'.'.join(row.identifier)} changed meanwhile")
        return found

    def aside(self, identifier: Identifier, key: str) -> Pointer | None:
        return self._table(_aside(identifier, key))

    def _own_aside(self, row: Pointer) -> Identifier | None:
        """Return the name of a former table that a publish has set aside; None if it is not."""
        found = self.aside(row.identifier, row.location)
        return found.identifier if found is not None and self._is_former(found, row) else None

    @staticmethod
    def _places(row: Pointer, document: md.Document) -> list[Identifier]:
        """Return the names under which a former table may be staged, which no other one has."""
        schema, staged = _aside(row.identifier, row.location)
        home = str(document["location"]).rstrip("/").split("/")[-2]
        places = [(side_schema(schema, FORMER_BRANCH), staged)]
        if home == schema or home.startswith(f"{schema}__"):
            places.append((home, staged))
        return places

    def _staged(self, staged: Pointer, row: Pointer) -> None:
        try:
            self._register(staged)
        except Conflict:
            # An attempt that died has staged it.
            found = self._table(staged.identifier)
            if found is None or not self._is_former(found, row):
                raise

    def _is_former(self, found: Pointer, row: Pointer) -> bool:
        document = self.document(found.location) or self._read(found.location)
        return is_former(document, self._read(row.location), row.location, self._read)

    def _register(self, row: Pointer) -> None:
        body = {"name": row.identifier[1], "metadata-location": row.location}
        answer = self._send("POST", f"namespaces/{part(row.identifier[0])}/register", json=body)
        self._registered(
            answer, ".".join(row.identifier), lambda: self.get(row.identifier) is not None
        )

    def rename(self, before: Identifier, after: Identifier, kind: Kind) -> None:
        row = self._load(before, kind)
        if row is None:
            raise Conflict(None, f"{'.'.join(before)} does not exist")
        self._rename(before, after, kind, lambda: self._require(row))

    def _rename(
        self, before: Identifier, after: Identifier, kind: Kind, check: Callable[[], None]
    ) -> None:
        body = {"source": _named(before), "destination": _named(after)}
        answer = self._send("POST", f"{kind}s/rename", check=check, json=body)
        self._committed(answer, ".".join(before))

    def evolve(
        self,
        changes: Sequence[tuple[Pointer, MetadataChange]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        for row, change in changes:
            _require_expressible(row, change)
        commits = [(row, _body(row, change)) for row, change in changes if change.posted]
        if len(commits) > 1 and self.together:
            body = {"table-changes": [commit for _, commit in commits]}
            answer = self._send("POST", "transactions/commit", json=body)
            names = ", ".join(".".join(row.identifier) for row, _ in commits)
            self._committed(answer, names)
            for row, _ in commits:
                changed(row.identifier)
            return
        for row, commit in commits:
            schema, name = map(part, row.identifier)
            answer = self._send("POST", f"namespaces/{schema}/tables/{name}", json=commit)
            self._committed(answer, ".".join(row.identifier))
            changed(row.identifier)

    # Inner parts

    def _put(
        self,
        swap: PointerUpdate,
        after: Pointer,
        document: md.Document | None,
        made: Callable[[PointerUpdate], None],
    ) -> None:
        before = swap.before
        if before is not None and before.identifier != after.identifier:
            if before.location != after.location:
                raise CatalogError(
                    f"{'.'.join(before.identifier)} cannot be moved and changed in one step on a "
                    "REST catalog."
                )
            self.rename(before.identifier, after.identifier, after.kind)
            return
        if after.kind == "view":
            self._put_view(before, after, document or self._read(after.location))
            return
        if document is not None:
            self.files.write(after.location, md.dump(document))
        if before is not None:
            self._require(before)
            self._drop(before)
            made(swap)
        if document is None:
            self.register(after)
            return
        try:
            self._register(after)
        except CannotShare:
            self.files.delete(after.location)
            raise

    def _put_view(self, before: Pointer | None, after: Pointer, document: md.Document) -> None:
        schema, name = map(part, after.identifier)
        if before is not None:
            live = self.document(before.location) or self._read(before.location)
            body: dict[str, Any] = {
                "identifier": _named(after.identifier),
                "requirements": [{"type": "assert-view-uuid", "uuid": md.identity(live)}],
                "updates": view_updates(live, document),
            }
            answer = self._send("POST", f"namespaces/{schema}/views/{name}", json=body)
        else:
            version = md.current_version(document)
            found = [s for s in document["schemas"] if s["schema-id"] == version["schema-id"]]
            body = {
                # Without a location: some servers refuse one that is not where they would put it.
                "name": after.identifier[1],
                "schema": found[0],
                "view-version": {**version, "version-id": 1},
                "properties": md.properties_of(document),
            }
            answer = self._send("POST", f"namespaces/{schema}/views", json=body)
        self._committed(answer, ".".join(after.identifier))

    def _drop(self, row: Pointer) -> bool:
        """Drop a table or view without its files; returns False if it is gone."""
        schema, name = map(part, row.identifier)
        answer = self._send(
            "DELETE",
            f"namespaces/{schema}/{row.kind}s/{name}",
            check=lambda: self._require(row),
            # The files of a clone belong to the live table; the default depends on the server.
            # Lakekeeper's default deletes the folder of a table, and of a view.
            params={"purgeRequested": "false"},
        )
        if answer.status_code == 404:
            return False
        self._committed(answer, ".".join(row.identifier))
        return True

    def _require(self, row: Pointer) -> None:
        """Check that a row is as it was read, directly before a request that has no condition."""
        if self._load(row.identifier, row.kind) != row:
            raise Conflict(None, f"{'.'.join(row.identifier)} changed meanwhile")

    def _is_made(self, swap: PointerUpdate) -> bool | None:
        row = swap.after or swap.before
        assert row is not None
        found = self.get(row.identifier)
        if swap.after is None:
            return found is None or (False if found == row else None)
        if found is None:
            return False
        document = self.document(found.location) or self._read(found.location)
        if swap.change is not None:
            return swap.change.is_made(document)
        log = (step["metadata-file"] for step in document.get("metadata-log") or ())
        return row.location in (found.location, *log)

    def _table(self, identifier: Identifier) -> Pointer | None:
        return self._load(identifier, "table")

    def _view(self, identifier: Identifier) -> Pointer | None:
        return self._load(identifier, "view") if self.keeps_views else None

    def _load(self, identifier: Identifier, kind: Kind) -> Pointer | None:
        schema, name = map(part, identifier)
        answer = self._send("GET", f"namespaces/{schema}/{kind}s/{name}")
        # 406: some catalogs keep views among their tables, and refuse to load a view as a table.
        # 400: no server has a table whose name it does not take in a path, as with a slash.
        odd_name = answer.status_code == 400 and any(map(_ODD_NAME.search, identifier))
        if answer.status_code in (404, 406) or odd_name:
            return None
        body = self._must(answer).json()
        self._keys.keep(identifier, body)
        location = str(body["metadata-location"])
        with self._lock:
            self._documents[location] = body["metadata"]
            self._documents.move_to_end(location)
            while len(self._documents) > _DOCUMENTS:
                self._documents.popitem(last=False)
        return Pointer(identifier, kind, location)


def _require_expressible(row: Pointer, change: MetadataChange) -> None:
    if change.refusal is not None:
        raise CatalogError(
            f"A REST catalog cannot make this change of {'.'.join(row.identifier)}: "
            f"{change.refusal}. The table is as it was. Build it again on the present main with "
            "`dbt build`."
        )


def _body(row: Pointer, change: MetadataChange) -> dict[str, Any]:
    return {
        "identifier": _named(row.identifier),
        "requirements": change.requirements,
        "updates": change.posted,
    }


def _aside(identifier: Identifier, key: str) -> Identifier:
    return identifier[0], former_name(identifier[1], key)


def _branch_of(schema: str, place: str) -> str | None:
    return None if place == schema else place.removeprefix(f"{schema}__")


def _named(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": [identifier[0]], "name": identifier[1]}
