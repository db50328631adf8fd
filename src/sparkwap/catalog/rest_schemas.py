"""The schemas of a REST catalog; a side schema has its audit branch as a property.

A server that keeps dropped tables for a while (Lakekeeper) keeps their schema, too. Such a side
schema gets a property, counts as dropped, and is dropped when the server lets it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparkwap.catalog.backend import SequentialBackend
from sparkwap.catalog.model import Kind
from sparkwap.catalog.pointers import SIDE_OF, Conflict, require_side_schema
from sparkwap.catalog.rest_client import RestClient, part
from sparkwap.core import retry
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from requests import Response

    from sparkwap.catalog.vended_keys import VendedKeys

_VIEWS = "GET /v1/{prefix}/namespaces/{namespace}/views"
_EMPTIED = "wap.emptied"
"""The property of a side schema that could not be dropped."""

_NO_PROPERTIES: Mapping[str, str] = {}


class RestSchemas(RestClient, SequentialBackend):
    """The schemas of a REST catalog, and the names of their members."""

    def __init__(self, name: str, properties: Mapping[str, str], keys: VendedKeys) -> None:
        super().__init__(name, properties, keys)
        self.offered = {str(endpoint) for endpoint in self._catalog._supported_endpoints}
        self.keeps_views = _VIEWS in self.offered
        self._emptied: set[str] = set()
        self._hidden: set[str] = set()

    def kinds(self, schema: str) -> dict[str, Kind]:
        path = f"namespaces/{part(schema)}"
        tables = self._pages(f"{path}/tables", "identifiers")
        # Some catalogs also list views among the tables.
        views = self._pages(f"{path}/views", "identifiers") if self.keeps_views else []
        found: dict[str, Kind] = {one["name"]: "table" for one in tables}
        return found | {one["name"]: "view" for one in views}

    def schemas(self) -> set[str]:
        """Return all schemas of one level; a dbt project cannot name deeper ones.

        Without those that the server keeps although they were dropped, as `side_schemas` has last
        found them.
        """
        found = self._listed()
        with self._lock:
            return found - self._hidden

    def _listed(self) -> set[str]:
        found = self._pages("namespaces", "namespaces")
        return {one[0] for one in found if len(one) == 1}

    def side_schemas(self) -> dict[str, str]:
        # Only these names can be side schemas; each needs a request.
        named = sorted(schema for schema in self._listed() if "__" in schema)
        found = dict(zip(named, self._threads.map(self._schema_properties, named), strict=True))
        # A run may have built in one since it was marked.
        emptied = {one for one in named if _EMPTIED in found[one] and not self.kinds(one)}
        with self._lock:
            self._emptied, self._hidden = set(emptied), emptied
        return {
            schema: found[schema][SIDE_OF]
            for schema in named
            if SIDE_OF in found[schema] and schema not in emptied
        }

    def folder(self, schema: str) -> str | None:
        """Return the folder of a schema, if the server tells; some refuse tables elsewhere."""
        found = self._schema_properties(schema).get("location")
        return found.rstrip("/") if found else None

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        properties = {SIDE_OF: branch} if branch else {}
        body = {"namespace": [schema], "properties": properties}

        def create() -> Response:
            answer = self._send("POST", "namespaces", json=body)
            return self._must(answer) if answer.status_code >= 500 else answer

        # The server's database may be busy; a second request does no harm.
        answer = retry.retrying(lambda error: isinstance(error, CatalogError))(create)
        if answer.status_code == 409:
            if branch is not None:
                found = self._schema_properties(schema)
                require_side_schema(schema, branch, found.get(SIDE_OF))
                if _EMPTIED in found:
                    self._set_properties(schema, removals=[_EMPTIED])
                    with self._lock:
                        self._hidden.discard(schema)
            return
        self._must(answer)

    def _drop_schema(self, schema: str, *, must: bool) -> None:
        if not must and self.kinds(schema):
            return
        answer = self._send("DELETE", f"namespaces/{part(schema)}")
        if answer.status_code not in (400, 409):
            if answer.status_code != 404:
                self._must(answer)
            return
        if self.kinds(schema):
            if must:
                raise Conflict(None, f"schema {schema} got a new member meanwhile")
            return
        # The server keeps what was dropped, and the schema with it, for a while (Lakekeeper).
        self._set_properties(schema, updates={_EMPTIED: "true"})

    def _drop_schemas(self, schemas: Collection[str], required: Collection[str]) -> None:
        """Also drop side schemas that could not be dropped before, as far as the server lets it."""
        super()._drop_schemas(schemas, required)
        if not schemas:
            return
        with self._lock:
            emptied, self._emptied = self._emptied, set()
        for schema in sorted(emptied):
            if not self.kinds(schema):
                self._send("DELETE", f"namespaces/{part(schema)}")

    def _set_properties(
        self,
        schema: str,
        removals: Collection[str] = (),
        updates: Mapping[str, str] = _NO_PROPERTIES,
    ) -> None:
        body = {"removals": list(removals), "updates": dict(updates)}
        answer = self._send("POST", f"namespaces/{part(schema)}/properties", json=body)
        if answer.status_code != 404:
            self._must(answer)

    def _schema_properties(self, schema: str) -> dict[str, str]:
        answer = self._send("GET", f"namespaces/{part(schema)}")
        if answer.status_code == 404:
            return {}
        return dict(self._must(answer).json().get("properties") or {})
