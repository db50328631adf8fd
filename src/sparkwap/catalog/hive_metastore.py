"""Hive's metastore: entries change under a lock of one table, and by compare and swap.

Iceberg's catalogs in Spark and PyIceberg hold the same lock while they commit, and do not compare
and swap then. Those of tables with ``engine.hive.lock-enabled=false`` compare and swap, without a
lock. Therefore every change here does both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.metastore import Entry
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer, Unanswered
from sparkwap.core.errors import CatalogError, ConfigError

try:
    from hive_metastore.ttypes import (
        AlreadyExistsException,
        Database,
        EnvironmentContext,
        InvalidObjectException,
        InvalidOperationException,
        MetaException,
        NoSuchObjectException,
        Table,
        UnknownDBException,
    )
    from thrift.Thrift import TApplicationException, TException

    from sparkwap.catalog import hive_entries as entries
    from sparkwap.catalog.hive_client import (
        BROKEN,
        FAILED,
        Client,
        Connections,
        Hive4Catalog,
        said,
        user,
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
_ENTRIES_AT_ONCE = 100
_NO_SCHEMA = (NoSuchObjectException, UnknownDBException)

R = TypeVar("R")


class HiveMetastore:
    """The databases, tables and views of a Hive metastore; safe for use by several threads.

    Hive keeps all names in lower case, so that a name with capitals does not exist.

    Args:
        name: The catalog's name, the same for Spark and PyIceberg.
        properties: PyIceberg's catalog properties: ``uri``, ``warehouse``, ``ugi``,
            ``hive.kerberos-authentication``, ``hive.kerberos-service-name``,
            ``hive.hive2-compatible``; `LOCKS` and `PARAMETER_LENGTH`.
    """

    has_views = True

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = {key: str(value) for key, value in properties.items()}
        self._connections = Connections(self.properties)
        self._locks = self.properties.get(LOCKS, "true").lower() != "false"
        self._limit = _length(self.properties.get(PARAMETER_LENGTH))
        self._hive2 = self.properties.get(_HIVE2, "false").lower() == "true"
        self._of_thread = threading.local()
        self._files = WarehouseFiles(self.properties)
        self._creation = threading.Lock()

    # Reading

    def entry(self, identifier: Identifier) -> Entry | None:
        """Return the entry of a table or view; None if there is no such Iceberg table or view."""
        if not _folded(*identifier):
            return None
        table = self._read(lambda client: _get(client, identifier), ".".join(identifier))
        return _entry(table)

    def is_taken(self, identifier: Identifier) -> bool:
        """Return whether there is an entry of any format under a name."""
        if not _folded(*identifier):
            return False
        found = self._read(lambda client: _get(client, identifier), ".".join(identifier))
        return found is not None

    def entries(self, schema: str) -> list[Entry]:
        """Return the tables and views of a schema; none if the schema does not exist."""
        if not _folded(schema):
            return []

        def tables(client: Client) -> list[Table]:
            try:
                names = client.get_all_tables(schema)
                return _get_all(client, schema, names)
            except _NO_SCHEMA:
                return []

        found = [_entry(table) for table in self._read(tables, schema)]
        return [one for one in found if one is not None]

    def schemas(self) -> dict[str, dict[str, str]]:
        """Return schema -> its properties."""
        names = self._read(lambda client: list(client.get_all_databases()), "databases")
        found = {name: self.schema_properties(name) for name in names}
        return {name: properties for name, properties in found.items() if properties is not None}

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        """Return the properties of a schema; None if it does not exist."""
        if not _folded(schema):
            return None

        def database(client: Client) -> Database | None:
            try:
                return client.get_database(schema)
            except _NO_SCHEMA:
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
        database = Database(
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
            except AlreadyExistsException:
                return False
        return True

    def drop_schema(self, schema: str) -> bool:
        """Drop a schema without members; returns False if it has members (of any format)."""
        if not _folded(schema):
            return True
        try:
            self._change(
                schema,
                lambda client: client.drop_database(schema, deleteData=False, cascade=False),
            )
        except InvalidOperationException:
            return False
        except _NO_SCHEMA:
            return True
        return True

    def create(self, pointer: Pointer, document: md.Document) -> None:
        """Create the entry of a table or view.

        Raises:
            Conflict: The name is taken, or the schema does not exist.
        """
        _require_folded(*pointer.identifier)
        table = entries.new_entry(pointer, document, user(), self._limit, hive2=self._hive2)
        self._create(table)

    def swap(self, entry: Entry, location: str, document: md.Document) -> None:
        """Point an entry to another metadata file, if the entry is as it was read.

        Raises:
            Conflict: The entry has changed or is gone.
        """

        def swap(client: Client, table: Table | None) -> None:
            if table is None:
                raise _gone(entry)
            kind = entry.pointer.kind
            entries.update_entry(table, kind, location, document, self._limit, hive2=self._hive2)
            self._alter(client, entry, table)

        self._hold(entry, swap, lock=self._takes_lock(entry, document))

    def rename(self, entry: Entry, name: Identifier) -> None:
        """Give an entry another name, which has to be free; files stay where they are.

        Raises:
            Conflict: The name is taken, or the entry has changed or is gone.
        """
        _require_folded(*name)

        def rename(client: Client, table: Table | None) -> None:
            if table is None:
                raise _gone(entry)
            if _get(client, name) is not None:
                raise Conflict(None, f"{'.'.join(name)} exists")
            table.dbName, table.tableName = name
            self._alter(client, entry, table)

        self._hold(entry, rename)

    def drop(self, entry: Entry) -> None:
        """Drop an entry, without its files; nothing happens if it is gone.

        Raises:
            Conflict: The entry has changed.
        """

        def drop(client: Client, table: Table | None) -> None:
            if table is None:
                return
            try:
                _drop(client, entry.pointer.identifier)
            except MetaException:
                (found,) = self._looked_up(client, entry.pointer.identifier)
                if found is not None:
                    raise

        self._hold(entry, drop)

    # Marks

    def marks(self, schema: str) -> dict[str, str]:
        """Return name -> text of the marks of a schema."""

        def tables(client: Client) -> list[Table]:
            try:
                names = client.get_tables(schema, f"{entries.MARK_PREFIX}*")
                return _get_all(client, schema, names)
            except _NO_SCHEMA:
                return []

        found = self._read(tables, schema) if _folded(schema) else []
        named = ((entries.mark_of(table), table.viewOriginalText) for table in found)
        return {name: text or "" for name, text in named if name is not None}

    def put_mark(self, schema: str, name: str, text: str) -> None:
        """Create or replace a mark; the last writer wins."""
        _require_folded(schema)
        table = entries.mark_entry(schema, name, text, user())
        identifier = entries.identifier_of(table)

        def put(client: Client) -> bool:
            try:
                client.create_table(table)
                return True
            except AlreadyExistsException:
                pass
            except (InvalidObjectException, *_NO_SCHEMA) as error:
                raise Conflict(None, f"{schema}: {said(error)}") from error
            try:
                client.alter_table_with_environment_context(
                    *identifier, table, EnvironmentContext({})
                )
                return True
            except (InvalidOperationException, NoSuchObjectException):
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
        """Remove marks, if they exist."""
        identifiers = [(schema, entries.mark_name(name)) for name in names if _folded(schema)]

        def drop(client: Client) -> None:
            for identifier in identifiers:
                _drop(client, identifier)

        if identifiers:
            self._change(schema, drop)

    # Connections

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog of the same metastore, for the calling thread."""
        found: Catalog | None = getattr(self._of_thread, "catalog", None)
        if found is None:
            found = self._of_thread.catalog = Hive4Catalog(self.name, **self.properties)
        return found

    def close(self) -> None:
        """Close connections; later calls open them again."""
        self._connections.close()

    def _read(self, function: Callable[[Client], R], what: str) -> R:
        try:
            return self._connections.read(function)
        except TException as error:
            raise self._connections.refused(error, what) from error

    def _create(self, table: Table) -> None:
        name = ".".join(entries.identifier_of(table))

        def create(client: Client) -> None:
            try:
                client.create_table(table)
            except (AlreadyExistsException, MetaException) as error:
                # After an error of its database, Hive tries again: the first try may have been
                # made.
                (found,) = self._looked_up(client, entries.identifier_of(table))
                if _location(found) == _location(table):
                    return
                if found is not None:
                    raise Conflict(None, f"{name} exists") from error
                raise

        try:
            self._change(name, create)
        except AlreadyExistsException as error:
            raise Conflict(None, f"{name} exists") from error
        except (InvalidObjectException, *_NO_SCHEMA) as error:
            if self.schema_properties(table.dbName) is None:
                raise Conflict(None, f"the schema {table.dbName} does not exist") from error
            raise self._connections.refused(error, name) from error

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
        function: Callable[[Client, Table | None], None],
        *,
        lock: bool | None = None,
    ) -> None:
        """Call a function with what an entry is now, under its lock; None if it is gone.

        Raises:
            Conflict: The entry has changed.
        """
        identifier = entry.pointer.identifier

        def unlocked(client: Client) -> None:
            function(client, self._unchanged(client, entry))

        def locked(client: Client) -> None:
            self._connections.locked(client, identifier, lambda: unlocked(client))

        with_lock = self._locks if lock is None else lock
        self._change(".".join(identifier), locked if with_lock else unlocked)

    def _unchanged(self, client: Client, entry: Entry) -> Table | None:
        try:
            table = _get(client, entry.pointer.identifier)
        except BROKEN as error:
            raise self._connections.silent(error) from error
        except TException as error:
            raise self._connections.refused(error, ".".join(entry.pointer.identifier)) from error
        if table is not None and entries.pointer_of(table) != entry.pointer:
            raise Conflict(None, f"{'.'.join(entry.pointer.identifier)} changed meanwhile")
        return table

    def _alter(self, client: Client, entry: Entry, table: Table) -> None:
        """Write an entry, if its metadata file is as it was read."""
        identifier = entry.pointer.identifier
        name = ".".join(identifier)
        context = EnvironmentContext(
            {
                "DO_NOT_UPDATE_STATS": "true",
                "expected_parameter_key": entries.LOCATION,
                "expected_parameter_value": entry.pointer.location,
            }
        )
        try:
            client.alter_table_with_environment_context(*identifier, table, context)
        except NoSuchObjectException as error:
            raise _gone(entry) from error
        except (InvalidOperationException, MetaException) as error:
            # After an error of its database, Hive tries again: the first try may have been made.
            after, now = self._looked_up(client, entries.identifier_of(table), identifier)
            if _location(after) == _location(table):
                return
            if now is None or entries.pointer_of(now) != entry.pointer:
                raise Conflict(None, f"{name} changed meanwhile") from error
            if "already exists" in said(error) or "doesn't exist" in said(error):
                raise Conflict(None, f"{name}: {said(error)}") from error
            raise self._refused_change(error, name) from error

    def _looked_up(self, client: Client, *identifiers: Identifier) -> list[Table | None]:
        """Return the entries after a change of which it is not clear whether it was made."""
        try:
            return [_get(client, identifier) for identifier in identifiers]
        except FAILED as error:
            names = ", ".join(map(".".join, identifiers))
            raise Unanswered(f"{names}: {said(error)}", lost=True) from error

    def _refused_change(self, error: BaseException, name: str) -> CatalogError:
        if "incompatible" in said(error):
            return CatalogError(
                f"The Hive metastore does not let {name} change its columns: {said(error)}. This "
                "table was not changed. Iceberg needs the setting "
                "`hive.metastore.disallow.incompatible.col.type.changes=false` of the metastore. "
                "Then run the same command again."
            )
        return self._connections.refused(error, name)

    def _change(self, what: str, function: Callable[[Client], R]) -> R:
        """Call a function that changes something.

        Raises:
            Unanswered: The connection broke, or the metastore failed.
            CatalogError: The metastore refuses the change.
        """
        try:
            return self._connections.use(function)
        except BROKEN as error:
            raise Unanswered(f"{what}: no answer ({said(error)})", lost=True) from error
        except TApplicationException as error:
            # The server has no such request, or failed with an error that has no form.
            if error.type == TApplicationException.UNKNOWN_METHOD:
                raise self._connections.refused(error, what) from error
            raise Unanswered(f"{what}: {said(error)}", lost=False) from error
        except MetaException as error:
            raise self._connections.refused(error, what) from error


def _get(client: Client, identifier: Identifier) -> Table | None:
    try:
        return client.get_table(*identifier)
    except _NO_SCHEMA:
        return None


def _drop(client: Client, identifier: Identifier) -> None:
    try:
        client.drop_table(*identifier, deleteData=False)
    except _NO_SCHEMA:
        return


def _get_all(client: Client, schema: str, names: Collection[str]) -> list[Table]:
    found: list[Table] = []
    rest = iter(sorted(names))
    while some := list(islice(rest, _ENTRIES_AT_ONCE)):
        found += client.get_table_objects_by_name(schema, some)
    return found


def _entry(table: Table | None) -> Entry | None:
    pointer = None if table is None else entries.pointer_of(table)
    if table is None or pointer is None:
        return None
    return Entry(pointer, dict(table.parameters))


def _location(table: Table | None) -> str | None:
    if table is None:
        return None
    found: str | None = (table.parameters or {}).get(entries.LOCATION)
    return found


def _gone(entry: Entry) -> Conflict:
    return Conflict(None, f"{'.'.join(entry.pointer.identifier)} is gone")


def _folded(*names: str) -> bool:
    return all(name == name.lower() for name in names)


def _require_folded(*names: str) -> None:
    if not _folded(*names):
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
