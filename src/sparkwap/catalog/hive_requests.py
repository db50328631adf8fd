"""Requests to a Hive metastore: which errors mean that nothing was changed, and which do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TypeVar

from hive_metastore import ttypes
from hive_metastore.ttypes import Table
from thrift.Thrift import TApplicationException, TException

from sparkwap.catalog import hive_entries as entries
from sparkwap.catalog.hive_client import BROKEN, FAILED, Client, Connections, said
from sparkwap.catalog.metastore import Entry, is_folded
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Unanswered
from sparkwap.core.errors import CatalogError

NO_SCHEMA = (ttypes.NoSuchObjectException, ttypes.UnknownDBException)
"""Errors of a request about something that does not exist."""

_ENTRIES_AT_ONCE = 100

R = TypeVar("R")


class HiveRequests:
    """Sends requests to a Hive metastore; safe for use by several threads."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._connections = Connections(properties)

    def _table(self, identifier: Identifier) -> Table | None:
        """Return what has a name, of any format."""
        if not is_folded(*identifier):
            return None
        return self._read(lambda client: get_table(client, identifier), ".".join(identifier))

    def _tables(self, schema: str, names: Callable[[Client], list[str]]) -> list[Table]:
        """Return what has these names in a schema, of any format."""

        def tables(client: Client) -> list[Table]:
            try:
                return _all_tables(client, schema, names(client))
            except NO_SCHEMA:
                return []

        return self._read(tables, schema) if is_folded(schema) else []

    def _read(self, function: Callable[[Client], R], what: str) -> R:
        try:
            return self._connections.read(function)
        except TException as error:
            raise self._connections.refused(error, what) from error

    def _unchanged(self, client: Client, entry: Entry) -> Table | None:
        try:
            table = get_table(client, entry.pointer.identifier)
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
        context = ttypes.EnvironmentContext(
            {
                "DO_NOT_UPDATE_STATS": "true",
                "expected_parameter_key": entries.LOCATION,
                "expected_parameter_value": entry.pointer.location,
            }
        )
        try:
            client.alter_table_with_environment_context(*identifier, table, context)
        except ttypes.NoSuchObjectException as error:
            raise gone(entry) from error
        except (ttypes.InvalidOperationException, ttypes.MetaException) as error:
            # After an error of its database, Hive tries again: the first try may have been made.
            after, now = self._looked_up(client, entries.identifier_of(table), identifier)
            if location_of(after) == location_of(table):
                return
            if now is None or entries.pointer_of(now) != entry.pointer:
                raise Conflict(None, f"{name} changed meanwhile") from error
            if "already exists" in said(error) or "doesn't exist" in said(error):
                raise Conflict(None, f"{name}: {said(error)}") from error
            raise self._refused_change(error, name) from error

    def _looked_up(self, client: Client, *identifiers: Identifier) -> list[Table | None]:
        """Return the entries after a change of which it is not clear whether it was made."""
        try:
            return [get_table(client, identifier) for identifier in identifiers]
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
        except ttypes.MetaException as error:
            raise self._connections.refused(error, what) from error


def get_table(client: Client, identifier: Identifier) -> Table | None:
    """Return what has a name, of any format; None if there is nothing."""
    try:
        return client.get_table(*identifier)
    except NO_SCHEMA:
        return None


def drop_table(client: Client, identifier: Identifier) -> None:
    """Drop what has a name, without its files, if it exists."""
    try:
        client.drop_table(*identifier, deleteData=False)
    except NO_SCHEMA:
        return


def _all_tables(client: Client, schema: str, names: Collection[str]) -> list[Table]:
    found: list[Table] = []
    rest = iter(sorted(names))
    while some := list(islice(rest, _ENTRIES_AT_ONCE)):
        found += client.get_table_objects_by_name(schema, some)
    return found


def location_of(table: Table | None) -> str | None:
    """Return the metadata file of an entry; None if there is none."""
    if table is None:
        return None
    found: str | None = (table.parameters or {}).get(entries.LOCATION)
    return found


def gone(entry: Entry) -> Conflict:
    """Return the error of an entry that another writer has dropped."""
    return Conflict(None, f"{'.'.join(entry.pointer.identifier)} is gone")
