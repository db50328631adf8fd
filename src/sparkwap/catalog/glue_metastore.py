"""AWS Glue's data catalog as a metastore.

An entry is as Iceberg's own catalogs for Glue write it: a table with the parameters ``table_type``
and ``metadata_location``. Each state of it has a ``VersionId``, and an update that names a former
one is refused. Deletions have no such condition: an entry is read directly before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sparkwap.catalog.files import FILE_IO
from sparkwap.catalog.glue_client import GlueClient
from sparkwap.catalog.glue_entries import (
    DESCRIPTION_LENGTH,
    FORMER_LOCATION,
    METADATA_LOCATION,
    TABLE_TYPE,
    entry_of,
    kept_of,
    pointing,
    printed,
    schema_properties_of,
)
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.metastore import Entry, Metastore, is_folded
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer, Unanswered
from sparkwap.core import retry
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from pyiceberg.catalog.glue import GlueCatalog

_SKIP_ARCHIVE = "glue.skip-archive"

_MARK, _MARK_NAME, _MARK_TEXT = "SPARKWAP_MARK", "sparkwap.mark", "sparkwap.text"


class GlueMetastore(Metastore):
    """Glue's data catalog of one account and region; safe for use by several threads.

    Glue's names are in lower case: a name with capital letters is nobody's.

    Args:
        properties: PyIceberg's catalog properties: ``glue.*``, ``client.*``, ``warehouse``.
    """

    has_views = False

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties: Mapping[str, str] = {key: str(value) for key, value in properties.items()}
        self._client = GlueClient(name, self.properties)
        archives = self.properties.get(_SKIP_ARCHIVE, "true").strip().lower() == "false"
        self._skip_archive = not archives

    def pyiceberg(self) -> GlueCatalog:
        from pyiceberg.catalog.glue import GlueCatalog
        from pyiceberg.io import PY_IO_IMPL

        properties = {PY_IO_IMPL: FILE_IO, **self.properties}
        return GlueCatalog(self.name, client=self._client.glue, **properties)

    def close(self) -> None:
        self._client.glue.close()

    # Reading

    def entry(self, identifier: Identifier) -> Entry | None:
        table = self._table(identifier)
        return None if table is None else entry_of(identifier[0], table)

    def has_other(self, identifier: Identifier) -> bool:
        table = self._table(identifier)
        return table is not None and entry_of(identifier[0], table) is None

    def entries(self, schema: str) -> list[Entry]:
        found = (entry_of(schema, table) for table in self._tables(schema))
        return [entry for entry in found if entry is not None]

    def schemas(self) -> dict[str, dict[str, str]]:
        databases = self._client.pages("get_databases", "DatabaseList")
        return {database["Name"]: schema_properties_of(database) for database in databases}

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        if not is_folded(schema):
            return None
        answer = self._client.read("get_database", Name=schema)
        return None if answer is None else schema_properties_of(answer["Database"])

    def marks(self, schema: str) -> dict[str, str]:
        found = (table.get("Parameters") or {} for table in self._tables(schema))
        return {
            parameters[_MARK_NAME]: parameters.get(_MARK_TEXT, "")
            for parameters in found
            if parameters.get(TABLE_TYPE) == _MARK and _MARK_NAME in parameters
        }

    # Schemas

    def create_schema(self, schema: str, location: str, properties: Mapping[str, str]) -> bool:
        _require_folded(schema)
        parameters = dict(properties)
        comment = parameters.pop("comment", "")
        database = {
            "Name": schema,
            "Description": printed(comment, DESCRIPTION_LENGTH),
            "LocationUri": location.rstrip("/"),
            "Parameters": parameters,
        }

        def made() -> bool:
            return self.schema_properties(schema) == schema_properties_of(database)

        try:
            self._client.change("create_database", schema, made, DatabaseInput=database)
        except Conflict:
            return False
        return True

    def drop_schema(self, schema: str) -> bool:
        """Drop a schema without members; returns False if it has members, also other than Iceberg's
        tables, such as marks.

        Glue deletes a database with all its tables, so its tables are listed directly before. A
        table that is created between the two requests is lost, and so are tables that Lake
        Formation hides from the role of this process.
        """
        if next(self._tables(schema), None) is not None:
            return False
        if is_folded(schema):
            try:
                self._client.change(
                    "delete_database",
                    schema,
                    lambda: self.schema_properties(schema) is None,
                    Name=schema,
                )
            except Conflict as error:
                raise _busy(schema) from error
        return True

    # Entries

    def create(self, pointer: Pointer, document: Document) -> None:
        if pointer.kind == "view":
            raise CatalogError(
                f"{_name(pointer.identifier)} is a view, and Iceberg keeps no views in AWS Glue. "
                "Nothing was changed. Build the model as a table."
            )
        table = {"Name": pointer.identifier[1]}
        self._create(pointer, pointing(table, pointer.location, document))

    def swap(self, entry: Entry, location: str, document: Document) -> None:
        identifier = entry.pointer.identifier
        # Versions of a table that is created anew begin again, so the version alone does not do.
        table = self._present(entry)
        if table is None:
            raise Conflict(None, f"{_name(identifier)} is gone")
        if not entry.token:
            raise CatalogError(
                f"The entry of {_name(identifier)} has no VersionId, so it cannot be changed "
                "without the risk to undo a change by another engine. Nothing was changed. Use "
                "AWS Glue, or a service that answers with VersionId as Glue does."
            )

        def made() -> bool:
            parameters = (self._table(identifier) or {}).get("Parameters") or {}
            return location in (parameters.get(METADATA_LOCATION), parameters.get(FORMER_LOCATION))

        self._client.change(
            "update_table",
            _name(identifier),
            made,
            DatabaseName=identifier[0],
            TableInput=pointing(kept_of(table), location, document),
            VersionId=entry.token,
            SkipArchive=self._skip_archive,
        )

    def rename(self, entry: Entry, name: Identifier) -> None:
        """Give an entry another name, which has to be free; files stay where they are.

        Glue cannot rename: the new entry is created before the former one is deleted, so that both
        names exist for a moment. If the former one cannot be deleted, the new one is deleted again.

        Raises:
            Conflict: The name is taken, or the entry has changed or is gone.
            CatalogError: Glue refuses it; or both names exist, and the message says so.
            Unanswered: Glue failed; one or both names exist.
        """
        before = entry.pointer
        table = self._present(entry)
        if table is None:
            raise Conflict(None, f"{_name(before.identifier)} is gone")
        after = Pointer(name, before.kind, before.location)
        self._create(after, {**kept_of(table), "Name": name[1]})
        try:
            if not self._drop(entry):
                # Another process has dropped it, because it has seen both names.
                if self._table(name) is not None:
                    return
                raise Conflict(None, f"{_name(before.identifier)} is gone")
        except (CatalogError, Conflict) as error:
            self._undo_create(before, after, error)
            raise
        if self._table(name) is None:
            # Another process has moved it back at the same time, and found both names.
            self._create(before, kept_of(table))
            raise Conflict(None, f"{_name(name)} was dropped at the same time")

    def drop(self, entry: Entry) -> None:
        """Drop an entry, without its files; nothing happens if it is gone.

        A change by another engine between the last look at the entry and its deletion is lost.
        """
        self._drop(entry)

    # Marks

    def put_mark(self, schema: str, name: str, text: str) -> None:
        if self.schema_properties(schema) is None:
            raise CatalogError(
                f"The schema {schema} does not exist, so nothing can be noted in it. Nothing was "
                "changed. Create it, then run the same command again."
            )
        again = retry.retrying(lambda error: isinstance(error, Conflict))
        try:
            again(self._put_mark, schema, name, text)
        except Conflict as error:
            raise _busy(schema) from error

    def drop_marks(self, schema: str, names: Collection[str]) -> None:
        if not is_folded(schema):
            return
        for name in names:
            try:
                self._drop_mark(schema, name)
            except Conflict as error:
                raise _busy(schema) from error

    def _put_mark(self, schema: str, name: str, text: str) -> None:
        entry = _mark_entry(name)
        table = {
            "Name": entry,
            "Description": "A note of sparkwap; not a table.",
            # Athena cannot list a schema in which a table lacks one of these.
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [],
            "StorageDescriptor": {"Columns": []},
            "Parameters": {TABLE_TYPE: _MARK, _MARK_NAME: name, _MARK_TEXT: text},
        }

        def made() -> bool:
            found = (self._table((schema, entry)) or {}).get("Parameters") or {}
            return bool(found.get(_MARK_TEXT) == text)

        put: dict[str, Any] = {"DatabaseName": schema, "TableInput": table}
        try:
            self._client.change("update_table", name, made, **put, SkipArchive=True)
        except Conflict:
            self._client.change("create_table", name, made, **put)

    def _drop_mark(self, schema: str, name: str) -> None:
        entry = _mark_entry(name)
        self._client.change(
            "delete_table",
            name,
            lambda: self._table((schema, entry)) is None,
            DatabaseName=schema,
            Name=entry,
        )

    # Inner parts

    def _table(self, identifier: Identifier) -> dict[str, Any] | None:
        """Return what Glue has under a name, of any format."""
        schema, name = identifier
        if not is_folded(*identifier):
            return None
        answer = self._client.read("get_table", DatabaseName=schema, Name=name)
        return None if answer is None else answer["Table"]

    def _tables(self, schema: str) -> Iterator[dict[str, Any]]:
        """Yield all that a schema has, of any format."""
        if is_folded(schema):
            yield from self._client.pages("get_tables", "TableList", DatabaseName=schema)

    def _present(self, entry: Entry) -> dict[str, Any] | None:
        """Return what Glue has for an entry; None if it is gone.

        Raises:
            Conflict: The entry has changed.
        """
        identifier = entry.pointer.identifier
        table = self._table(identifier)
        if table is not None and entry_of(identifier[0], table) != entry:
            raise Conflict(None, f"{_name(identifier)} has changed")
        return table

    def _create(self, pointer: Pointer, table: Mapping[str, Any]) -> None:
        schema, name = pointer.identifier
        _require_folded(schema)
        _require_folded(name)

        def made() -> bool:
            found = self.entry(pointer.identifier)
            return found is not None and found.pointer == pointer

        self._client.change(
            "create_table", _name(pointer.identifier), made, DatabaseName=schema, TableInput=table
        )

    def _drop(self, entry: Entry) -> bool:
        """Drop an entry; returns False if it is gone."""
        schema, name = entry.pointer.identifier
        if self._present(entry) is None:
            return False

        def made() -> bool:
            return self.entry(entry.pointer.identifier) is None

        self._client.change(
            "delete_table", f"{schema}.{name}", made, DatabaseName=schema, Name=name
        )
        return True

    def _undo_create(self, before: Pointer, after: Pointer, error: Exception) -> None:
        try:
            found = self.entry(after.identifier)
            if found is not None and self._table(before.identifier) is not None:
                self._drop(Entry(after, found.token))
        except (CatalogError, Conflict, Unanswered) as undone:
            raise CatalogError(
                f"{_name(before.identifier)} could not be renamed to {_name(after.identifier)} "
                f"({error}), and the new name could not be removed ({undone}). Both names exist, "
                "with the same files. Drop one of them, without its files (no `purge`)."
            ) from error


def _mark_entry(name: str) -> str:
    """Return the name of a mark's entry, for which Glue takes less than for a mark's name."""
    return f"wap_mark_{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _require_folded(name: str) -> None:
    if not is_folded(name):
        raise CatalogError(
            f"{name} has capital letters, and AWS Glue keeps names in lower case. Nothing was "
            f"changed. Use the name {name.lower()}."
        )


def _name(identifier: Identifier) -> str:
    return ".".join(identifier)


def _busy(name: str) -> CatalogError:
    return CatalogError(
        f"Another process changes {name} in AWS Glue at the same time. Nothing was changed. Run "
        "the same command again."
    )
