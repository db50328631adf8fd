"""Hive's metastore: entries change under a lock of one table, and by compare and swap.

Iceberg's catalogs in Spark and PyIceberg hold the same lock while they commit, and do not compare
and swap then. Those of tables with ``engine.hive.lock-enabled=false`` compare and swap, without a
lock. Therefore every change here does both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.metastore import Entry, Metastore, is_folded
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer
from sparkwap.core.errors import CatalogError, ConfigError

try:
    from hive_metastore import ttypes
    from hive_metastore.ttypes import Table

    from sparkwap.catalog import hive_entries as entries
    from sparkwap.catalog.hive_client import Client, Hive4Catalog, said, user
    from sparkwap.catalog.hive_requests import (
        NO_SCHEMA,
        HiveRequests,
        drop_table,
        get_table,
        gone,
        location_of,
    )
except ImportError as error:
    raise ConfigError(
        f"A catalog in a Hive metastore needs a package that is missing ({error.name}). Nothing "
        "was done. Install it: pip install 'pyiceberg[hive]'"
    ) from error

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LOCKS = "hive.lock-enabled"
"""Catalog property: ``false`` if all engines have ``iceberg.engine.hive.lock-enabled=false``."""

PARAMETER_LENGTH = "iceberg.hive.table-property-max-size"
"""Catalog property: the longest parameter that describes a table's metadata; 0 for none."""

_HIVE2 = "hive.hive2-compatible"

R = TypeVar("R")


class HiveMetastore(HiveRequests, Metastore):
    """The databases, tables and views of a Hive metastore; safe for use by several threads.

    Hive keeps all names in lower case, so that a name with capitals does not exist.

    Args:
        properties: PyIceberg's catalog properties: ``uri``, ``warehouse``, ``ugi``,
            ``hive.kerberos-authentication``, ``hive.kerberos-service-name``,
            ``hive.hive2-compatible``; `LOCKS` and `PARAMETER_LENGTH`.
    """

    has_views = True

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = {key: str(value) for key, value in properties.items()}
        super().__init__(self.properties)
        self._locks = self.properties.get(LOCKS, "true").lower() != "false"
        self._limit = _length(self.properties.get(PARAMETER_LENGTH))
        self._hive2 = self.properties.get(_HIVE2, "false").lower() == "true"
        self._of_thread = threading.local()
        self._files = WarehouseFiles(self.properties)
        self._creation = threading.Lock()

    # Reading

    def entry(self, identifier: Identifier) -> Entry | None:
        return _entry(self._table(identifier))

    def has_other(self, identifier: Identifier) -> bool:
        table = self._table(identifier)
        return table is not None and _entry(table) is None

    def entries(self, schema: str) -> list[Entry]:
        tables = self._tables(schema, lambda client: client.get_all_tables(schema))
        return [entry for entry in map(_entry, tables) if entry is not None]

    def schemas(self) -> dict[str, dict[str, str]]:
        names = self._read(lambda client: list(client.get_all_databases()), "databases")
        found = {name: self.schema_properties(name) for name in names}
        return {name: properties for name, properties in found.items() if properties is not None}

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        if not is_folded(schema):
            return None

        def database(client: Client) -> ttypes.Database | None:
            try:
                return client.get_database(schema)
            except NO_SCHEMA:
                return None

        found = self._read(database, schema)
        if found is None:
            return None
        more = {"location": found.locationUri, "comment": found.description}
        return {**(found.parameters or {}), **{key: text for key, text in more.items() if text}}

    # Writing

    def create_schema(self, schema: str, location: str, properties: Mapping[str, str]) -> bool:
        """Create a schema; returns False if it exists.

        Of two that create a schema at once, the metastore refuses one, and then deletes the folder
        with all files if that request has created it. So the folder is created before. The refusal
        takes two seconds, so threads wait for each other.
        """
        _require_folded(schema)
        rest = {key: value for key, value in properties.items() if key != "comment"}
        database = ttypes.Database(
            name=schema,
            description=properties.get("comment"),
            locationUri=location,
            parameters=rest,
            ownerName=user(),
        )
        with self._creation:
            if self.schema_properties(schema) is not None:
                return False
            self._files.make_folder(location)
            try:
                self._change(schema, lambda client: client.create_database(database))
            except ttypes.AlreadyExistsException:
                return False
        return True

    def drop_schema(self, schema: str) -> bool:
        if not is_folded(schema):
            return True
        try:
            self._change(
                schema, lambda client: client.drop_database(schema, deleteData=False, cascade=False)
            )
        except ttypes.InvalidOperationException:
            return False
        except NO_SCHEMA:
            return True
        return True

    def create(self, pointer: Pointer, document: md.Document) -> None:
        _require_folded(*pointer.identifier)
        table = entries.new_entry(pointer, document, user(), self._limit, hive2=self._hive2)
        name = ".".join(pointer.identifier)

        def create(client: Client) -> None:
            try:
                client.create_table(table)
            except (ttypes.AlreadyExistsException, ttypes.MetaException) as error:
                # After an error of its database, Hive tries again: the first try may have been
                # made.
                (found,) = self._looked_up(client, pointer.identifier)
                if location_of(found) == pointer.location:
                    return
                if found is not None:
                    raise Conflict(None, f"{name} exists") from error
                raise

        try:
            self._change(name, create)
        except ttypes.AlreadyExistsException as error:
            raise Conflict(None, f"{name} exists") from error
        except (ttypes.InvalidObjectException, *NO_SCHEMA) as error:
            schema = pointer.identifier[0]
            if self.schema_properties(schema) is None:
                raise Conflict(None, f"the schema {schema} does not exist") from error
            raise self._connections.refused(error, name) from error

    def swap(self, entry: Entry, location: str, document: md.Document) -> None:
        def swap(client: Client, table: Table) -> None:
            kind = entry.pointer.kind
            entries.update_entry(table, kind, location, document, self._limit, hive2=self._hive2)
            self._alter(client, entry, table)

        self._hold(entry, swap, lock=self._takes_lock(entry, document))

    def rename(self, entry: Entry, name: Identifier) -> None:
        _require_folded(*name)

        def rename(client: Client, table: Table) -> None:
            if get_table(client, name) is not None:
                raise Conflict(None, f"{'.'.join(name)} exists")
            table.dbName, table.tableName = name
            self._alter(client, entry, table)

        self._hold(entry, rename)

    def drop(self, entry: Entry) -> None:
        def drop(client: Client, _table: Table) -> None:
            try:
                drop_table(client, entry.pointer.identifier)
            except ttypes.MetaException:
                (found,) = self._looked_up(client, entry.pointer.identifier)
                if found is not None:
                    raise

        self._hold(entry, drop, may_be_gone=True)

    # Marks

    def marks(self, schema: str) -> dict[str, str]:
        pattern = f"{entries.MARK_PREFIX}*"
        tables = self._tables(schema, lambda client: client.get_tables(schema, pattern))
        named = ((entries.mark_of(table), table.viewOriginalText) for table in tables)
        return {name: text or "" for name, text in named if name is not None}

    def put_mark(self, schema: str, name: str, text: str) -> None:
        _require_folded(schema)
        table = entries.mark_entry(schema, name, text, user())
        identifier = entries.identifier_of(table)

        def put(client: Client) -> bool:
            try:
                client.create_table(table)
                return True
            except ttypes.AlreadyExistsException:
                pass
            except (ttypes.InvalidObjectException, *NO_SCHEMA) as error:
                raise Conflict(None, f"{schema}: {said(error)}") from error
            try:
                client.alter_table_with_environment_context(
                    *identifier, table, ttypes.EnvironmentContext({})
                )
                return True
            except (ttypes.InvalidOperationException, ttypes.NoSuchObjectException):
                return False

        # Another writer may create or remove the mark between two requests.
        for _ in range(5):
            if self._change(".".join(identifier), put):
                return
        raise CatalogError(
            f"The mark {name} of {schema} in the Hive metastore could not be written: other "
            "writers changed it each time. Nothing was changed. Run the same command again."
        )

    def drop_marks(self, schema: str, names: Collection[str]) -> None:
        identifiers = [(schema, entries.mark_name(name)) for name in names if is_folded(schema)]

        def drop(client: Client) -> None:
            for identifier in identifiers:
                drop_table(client, identifier)

        if identifiers:
            self._change(schema, drop)

    # Connections

    def pyiceberg(self) -> Catalog:
        found: Catalog | None = getattr(self._of_thread, "catalog", None)
        if found is None:
            found = self._of_thread.catalog = Hive4Catalog(self.name, **self.properties)
        return found

    def close(self) -> None:
        self._connections.close()

    def _takes_lock(self, entry: Entry, document: md.Document) -> bool:
        """Return whether to take the lock; not only if both states of the table do without."""
        states = (entry.token or {}, md.properties_of(document))
        if entry.pointer.kind == "table" and all(
            str(state.get(entries.LOCK_ENABLED, "true")).lower() == "false" for state in states
        ):
            return False
        return self._locks

    def _hold(
        self,
        entry: Entry,
        function: Callable[[Client, Table], None],
        *,
        lock: bool | None = None,
        may_be_gone: bool = False,
    ) -> None:
        """Call a function with what an entry is now, under its lock.

        Raises:
            Conflict: The entry has changed, or is gone and may not be.
        """
        identifier = entry.pointer.identifier

        def unlocked(client: Client) -> None:
            table = self._unchanged(client, entry)
            if table is not None:
                function(client, table)
            elif not may_be_gone:
                raise gone(entry)

        def locked(client: Client) -> None:
            self._connections.locked(client, identifier, lambda: unlocked(client))

        with_lock = self._locks if lock is None else lock
        self._change(".".join(identifier), locked if with_lock else unlocked)


def _entry(table: Table | None) -> Entry | None:
    pointer = None if table is None else entries.pointer_of(table)
    if table is None or pointer is None:
        return None
    return Entry(pointer, dict(table.parameters))


def _require_folded(*names: str) -> None:
    if not is_folded(*names):
        raise CatalogError(
            f"{'.'.join(names)} has capitals, and a Hive metastore keeps all names in lower case. "
            "Nothing was changed. Write the name in lower case (schema, alias or file name of the "
            "model)."
        )


def _length(text: str | None) -> int:
    try:
        return int(text) if text else entries.LONGEST
    except ValueError:
        raise ConfigError(
            f"`{PARAMETER_LENGTH}` in `catalog` of the profile is {text!r}; it has to be a number."
        ) from None
