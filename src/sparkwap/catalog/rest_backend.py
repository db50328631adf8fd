"""REST catalogs: changes are posted as requirements and updates.

The server writes all metadata, so what is posted is the change itself (`change`).
Several tables change in one request where the server offers that; even then the caller has to
look afterwards, as a server may offer it and not be atomic (Iceberg's own test server is one).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import current_version, view_updates
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import (
    Conflict,
    Fate,
    Pointer,
    PointerUpdate,
    require_side_schema,
)
from sparkwap.catalog.rest_client import RestClient
from sparkwap.core import retry
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from requests import Response

    from sparkwap.catalog.leases import Guard
    from sparkwap.core.checkpoints import Part

MULTI_TABLE = "wap.multi-table-commit"
"""Catalog property: ``false`` to leave a server's multi-table commit alone."""

_TRANSACTION = "POST /v1/{prefix}/transactions/commit"
_VIEWS = "GET /v1/{prefix}/namespaces/{namespace}/views"
_SIDE_OF = "wap.branch"
_NONE: Mapping[Identifier, Pointer | None] = {}
_DOCUMENTS = 500


class RestBackend(RestClient):
    """The tables and views of a REST catalog; safe for use by several threads.

    Args:
        name: The catalog's name, the same for Spark and PyIceberg.
        properties: PyIceberg's catalog properties: ``uri``, ``warehouse``, those of the
            authentication and of the file access, and `MULTI_TABLE`.

    Raises:
        CatalogError: The server does not answer, or refuses.
    """

    takes_files = False
    atomic = False

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        super().__init__(name, properties)
        offered = {str(endpoint) for endpoint in self._catalog._supported_endpoints}
        wanted = self.properties.get(MULTI_TABLE, "true").lower() != "false"
        self.multi_table = wanted and _TRANSACTION in offered
        self._has_views = _VIEWS in offered
        self._files = WarehouseFiles(self.properties)
        self._documents: OrderedDict[str, md.Document] = OrderedDict()

    # Reading

    def get(self, identifier: Identifier) -> Pointer | None:
        """The row of one table or view."""
        return self._table(identifier) or self._view(identifier)

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """The rows of those that exist, a request or two for each."""
        rows = self._map(self.get, set(identifiers))
        return {row.identifier: row for row in rows if row is not None}

    def members(self, schema: str) -> list[Pointer]:
        """The rows of one schema."""
        found = self._map(
            lambda item: (
                self._view((schema, item[0]))
                if item[1] == "view"
                else self._table((schema, item[0]))
            ),
            self.kinds(schema).items(),
        )
        return [row for row in found if row is not None]

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Name -> kind of the members of one schema."""
        path = f"namespaces/{_part(schema)}"
        tables = self._pages(f"{path}/tables", "identifiers")
        # Some catalogs list views among the tables, too.
        views = self._pages(f"{path}/views", "identifiers") if self._has_views else []
        found: dict[str, Kind] = {one["name"]: "table" for one in tables}
        return found | {one["name"]: "view" for one in views}

    def all(self) -> list[Pointer]:
        """All rows of the catalog."""
        return [row for schema in sorted(self.schemas()) for row in self.members(schema)]

    def others(self) -> list[Pointer]:
        """None: a server tells of its own catalog only."""
        return []

    def schemas(self) -> set[str]:
        """All schemas of one level; deeper ones are none that a dbt project can name."""
        found = self._pages("namespaces", "namespaces")
        return {one[0] for one in found if len(one) == 1}

    def side_schemas(self) -> dict[str, str]:
        """The side schemas and the audit branch of each."""
        # Only these names can be side schemas, so that the others need not be asked for.
        named = sorted(schema for schema in self.schemas() if "__" in schema)
        owners = self._map(lambda schema: self._schema_properties(schema).get(_SIDE_OF), named)
        return {schema: owner for schema, owner in zip(named, owners, strict=True) if owner}

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it is not there, as the side schema of ``branch`` if one is given.

        Raises:
            ConfigError: It is there, and is no side schema of that branch.
        """
        properties = {_SIDE_OF: branch} if branch else {}
        body = {"namespace": [schema], "properties": properties}

        def create() -> Response:
            answer = self._send("POST", "namespaces", json=body)
            return self._must(answer) if answer.status_code >= 500 else answer

        # A server whose database was busy; to ask twice does no harm, as there is none or one.
        answer = retry.retrying(lambda error: isinstance(error, CatalogError))(create)
        if answer.status_code == 409:
            if branch is not None:
                require_side_schema(schema, branch, self._schema_properties(schema).get(_SIDE_OF))
            return
        self._must(answer)

    def document(self, location: str) -> md.Document | None:
        """The document that the server gave along with a row."""
        with self._lock:
            return self._documents.get(location)

    def pyiceberg(self) -> RestCatalog:
        """PyIceberg's catalog, which this is built on."""
        return self._catalog

    # Writing

    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        documents: Mapping[str, md.Document],
        requires: Mapping[Identifier, Pointer | None] = _NONE,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = lambda part: None,
        guard: Guard | None = None,
    ) -> None:
        """Make the changes one after the other; those of metadata together where offered.

        What makes room comes last, so that a series that breaks off has lost nothing, and the
        caller, who looks again after a conflict, finds the rest still to be done.

        Raises:
            Conflict: Something was not as expected; earlier changes of the series may be made.
            Unanswered: The server failed; see `fate`.
            CatalogError: The change cannot be said in updates, or the server refuses it.
        """
        changes = [(swap.before, swap.change) for swap in swaps if swap.before and swap.change]
        others = [swap for swap in swaps if not swap.change]
        at("begun")
        self._require(requires)
        if guard is not None:
            guard(None)
        self.evolve(changes)
        for swap in others:
            if swap.after is not None:
                self._put(swap.before, swap.after, documents)
        for swap in others:
            if swap.after is None and swap.before is not None:
                self._drop(swap.before)
        for schema in sorted({*drop_if_empty, *drop_schemas}):
            self._drop_schema(schema, must=schema in drop_schemas)
        at("rows_changed")

    def _require(self, requires: Mapping[Identifier, Pointer | None]) -> None:
        found = self.find(set(requires))
        for identifier, row in requires.items():
            if found.get(identifier) != row:
                raise Conflict(None, f"{'.'.join(identifier)} changed meanwhile")

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """What became of a series that did not end cleanly: all of it, nothing, or some."""
        done = [self._is_made(swap) for swap in swaps]
        if all(done):
            return "made"
        return "unknown" if any(done) else "not made"

    def register(self, row: Pointer) -> None:
        """Put a table under a free name, at a metadata file that is there.

        Raises:
            Conflict: The name is taken.
        """
        body = {"name": row.identifier[1], "metadata-location": row.location}
        answer = self._send("POST", f"namespaces/{_part(row.identifier[0])}/register", json=body)
        self._committed(answer, ".".join(row.identifier))

    def rename(self, before: Identifier, after: Identifier, kind: Kind) -> None:
        """Move a table or view to a free name.

        Raises:
            Conflict: The name is taken, or nothing is there to be moved.
        """
        body = {"source": _named(before), "destination": _named(after)}
        answer = self._send("POST", f"{kind}s/rename", json=body)
        self._committed(answer, ".".join(before))

    def evolve(
        self,
        changes: Sequence[tuple[Pointer, MetadataChange]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        """MetadataChange the metadata of tables.

        In one request where the server offers it; ``changed`` is called for each table as soon as
        the server has said yes.

        Raises:
            Conflict: A requirement does not hold.
            Unanswered: The server failed.
            CatalogError: The change cannot be said in updates, or the server refuses it.
        """
        for row, change in changes:
            _require_expressible(row, change)
        commits = [(row, _body(row, change)) for row, change in changes if change.posted]
        if len(commits) > 1 and self.multi_table:
            body = {"table-changes": [commit for _, commit in commits]}
            answer = self._send("POST", "transactions/commit", json=body)
            names = ", ".join(".".join(row.identifier) for row, _ in commits)
            self._committed(answer, names)
            for row, _ in commits:
                changed(row.identifier)
            return
        for row, commit in commits:
            schema, name = map(_part, row.identifier)
            answer = self._send("POST", f"namespaces/{schema}/tables/{name}", json=commit)
            self._committed(answer, ".".join(row.identifier))
            changed(row.identifier)

    # Inner parts

    def _put(
        self, before: Pointer | None, after: Pointer, documents: Mapping[str, md.Document]
    ) -> None:
        document = documents.get(after.location)
        if before is not None and before.identifier != after.identifier:
            raise CatalogError(
                f"{'.'.join(before.identifier)} cannot be moved in one step on a REST catalog."
            )
        if after.kind == "view":
            self._put_view(before, after, document or self._read(after.location))
            return
        if document is not None:
            self._files.write(after.location, md.dump(document))
        if before is not None:
            self._drop(before)
        self.register(after)

    def _put_view(self, before: Pointer | None, after: Pointer, document: md.Document) -> None:
        schema, name = map(_part, after.identifier)
        if before is not None:
            live = self.document(before.location) or self._read(before.location)
            body: dict[str, Any] = {
                "identifier": _named(after.identifier),
                "requirements": [{"type": "assert-view-uuid", "uuid": md.identity(live)}],
                "updates": view_updates(live, document),
            }
            answer = self._send("POST", f"namespaces/{schema}/views/{name}", json=body)
        else:
            version = current_version(document)
            found = [s for s in document["schemas"] if s["schema-id"] == version["schema-id"]]
            body = {
                "name": after.identifier[1],
                "location": document["location"],
                "schema": found[0],
                "view-version": {**version, "version-id": 1},
                "properties": md.properties_of(document),
            }
            answer = self._send("POST", f"namespaces/{schema}/views", json=body)
        self._committed(answer, ".".join(after.identifier))

    def _drop(self, row: Pointer) -> None:
        schema, name = map(_part, row.identifier)
        answer = self._send(
            "DELETE",
            f"namespaces/{schema}/{row.kind}s/{name}",
            # A clone's files are the live table's, and Spark's default is the server's to choose.
            params={"purgeRequested": "false"} if row.kind == "table" else None,
        )
        if answer.status_code != 404:
            self._committed(answer, ".".join(row.identifier))

    def _drop_schema(self, schema: str, *, must: bool) -> None:
        if not must and self.kinds(schema):
            return
        answer = self._send("DELETE", f"namespaces/{_part(schema)}")
        if answer.status_code == 409:
            if must:
                raise Conflict(None, f"schema {schema} got a new member meanwhile")
            return
        if answer.status_code != 404:
            self._must(answer)

    def _is_made(self, swap: PointerUpdate) -> bool:
        row = swap.after or swap.before
        assert row is not None
        found = self.get(row.identifier)
        if swap.after is None:
            return found is None
        if found is None:
            return False
        if swap.change is not None:
            return swap.change.is_made(self.document(found.location) or self._read(found.location))
        return found.location == row.location

    def _table(self, identifier: Identifier) -> Pointer | None:
        return self._load(identifier, "table")

    def _view(self, identifier: Identifier) -> Pointer | None:
        return self._load(identifier, "view") if self._has_views else None

    def _load(self, identifier: Identifier, kind: Kind) -> Pointer | None:
        schema, name = map(_part, identifier)
        answer = self._send("GET", f"namespaces/{schema}/{kind}s/{name}")
        # A catalog that keeps views among its tables says so by refusing to load one as a table.
        if answer.status_code in (404, 406):
            return None
        body = self._must(answer).json()
        location = str(body["metadata-location"])
        with self._lock:
            self._documents[location] = body["metadata"]
            self._documents.move_to_end(location)
            while len(self._documents) > _DOCUMENTS:
                self._documents.popitem(last=False)
        return Pointer(identifier, kind, location)

    def _read(self, location: str) -> md.Document:
        return md.parse(self._files.read(location))

    def _schema_properties(self, schema: str) -> dict[str, str]:
        answer = self._send("GET", f"namespaces/{_part(schema)}")
        if answer.status_code == 404:
            return {}
        return dict(self._must(answer).json().get("properties") or {})


def _require_expressible(row: Pointer, change: MetadataChange) -> None:
    if change.refusal is not None:
        raise CatalogError(
            f"{'.'.join(row.identifier)} cannot be changed so on a REST catalog: {change.refusal}. "
            "It stands as it was. Build it again on main as it is now with `dbt build`."
        )


def _body(row: Pointer, change: MetadataChange) -> dict[str, Any]:
    return {
        "identifier": _named(row.identifier),
        "requirements": change.requirements,
        "updates": change.posted,
    }


def _named(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": [identifier[0]], "name": identifier[1]}


def _part(name: str) -> str:
    return quote(name, safe="")
