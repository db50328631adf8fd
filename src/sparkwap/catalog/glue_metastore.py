"""AWS Glue's data catalog as a metastore.

An entry is as Iceberg's own catalogs for Glue write it: a table with the parameters ``table_type``
and ``metadata_location``. Each state of it has a ``VersionId``, and an update that names a former
one is refused. Deletions have no such condition: an entry is read directly before.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.metastore import Entry
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer, Unanswered
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core import retry
from sparkwap.core.errors import CatalogError, ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog.glue import GlueCatalog

_ICEBERG = "ICEBERG"
_TYPE, _LOCATION, _FORMER = "table_type", "metadata_location", "previous_metadata_location"
_SKIP_ARCHIVE, _TRIES = "glue.skip-archive", "glue.max-retries"
_FILE_IO = "sparkwap.catalog.private.PrivateFileIO"

_MARK, _MARK_NAME, _MARK_TEXT = "SPARKWAP_MARK", "sparkwap.mark", "sparkwap.text"

_TAKEN, _GONE = "AlreadyExistsException", "EntityNotFoundException"
_CONFLICTS = frozenset({_TAKEN, _GONE, "ConcurrentModificationException"})
# Refusals after which the request may be carried out nevertheless, beside those with a status from
# 500 on.
_UNCLEAR = frozenset(
    {
        "FederationSourceException",
        "FederationSourceRetryableException",
        "InternalServiceException",
        "OperationTimeoutException",
    }
)
_ADVICE = {
    "AccessDeniedException": "Give the role of this process the rights to databases and tables in "
    "Glue (glue:Get*, glue:CreateDatabase, glue:DeleteDatabase, glue:CreateTable, "
    "glue:UpdateTable, glue:DeleteTable), and in Lake Formation if the database is registered "
    "there.",
    "InvalidInputException": "Names have to be lower case letters, digits and underscores.",
    "ResourceNumberLimitExceededException": "Raise the quota of the account.",
    "ThrottlingException": "Run the same command again, or raise the quota of the account.",
}
_DEFAULT_ADVICE = (
    "Check `glue.region`, `glue.endpoint`, `glue.id` and the credentials in `catalog` of the "
    "profile, or in the environment."
)

# What is kept of a table: all that a request to change it may name.
_KEPT = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)
# Properties with locations of files outside of a table's folder.
_OTHER_LOCATIONS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_TYPES = {
    "long": "bigint",
    "time": "string",
    "uuid": "string",
    "fixed": "binary",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_nano",
    "timestamptz_ns": "timestamp_nano",
}
# Glue's limits, in characters.
_COMMENT_LENGTH, _DESCRIPTION_LENGTH = 255, 2048
_NOT_PRINTED = re.compile(r"[\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]+")


class GlueMetastore:
    """Glue's data catalog of one account and region; safe for use by several threads.

    Glue's names are in lower case: a name with capital letters is nobody's.

    Args:
        name: The catalog's name, the same for Spark and PyIceberg.
        properties: PyIceberg's catalog properties: ``glue.*``, ``client.*``, ``warehouse``.

    Raises:
        ConfigError: A package is missing, or a property has a value that is not allowed.
        CatalogError: The client cannot be made, as without a region.
    """

    has_views = False

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties: Mapping[str, str] = {key: str(value) for key, value in properties.items()}
        self._glue: Any = _connect(name, self.properties).glue
        self._attempts = _Attempts()
        self._glue.meta.events.register("before-send.glue", self._attempts.sent)
        self._glue.meta.events.register("response-received.glue", self._attempts.answered)
        archives = self.properties.get(_SKIP_ARCHIVE, "true").strip().lower() == "false"
        self._skip_archive = not archives

    def pyiceberg(self) -> GlueCatalog:
        """Return PyIceberg's catalog on the same connections."""
        from pyiceberg.catalog.glue import GlueCatalog
        from pyiceberg.io import PY_IO_IMPL

        properties = {PY_IO_IMPL: _FILE_IO, **self.properties}
        return GlueCatalog(self.name, client=self._glue, **properties)

    def close(self) -> None:
        """Close connections; later calls open them again."""
        self._glue.close()

    # Reading

    def entry(self, identifier: Identifier) -> Entry | None:
        """Return the entry of a table; None if there is no such Iceberg table."""
        table = self._table(identifier)
        return None if table is None else _entry(identifier[0], table)

    def entries(self, schema: str) -> list[Entry]:
        """Return the tables of a schema; none if the schema does not exist."""
        found = (_entry(schema, table) for table in self._tables(schema))
        return [entry for entry in found if entry is not None]

    def schemas(self) -> dict[str, dict[str, str]]:
        """Return schema -> its properties."""
        databases = self._pages("get_databases", "DatabaseList")
        return {database["Name"]: _schema_properties(database) for database in databases}

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        """Return the properties of a schema; None if it does not exist."""
        if not _is_folded(schema):
            return None
        answer = self._read("get_database", Name=schema)
        return None if answer is None else _schema_properties(answer["Database"])

    def marks(self, schema: str) -> dict[str, str]:
        """Return name -> text of the marks of a schema."""
        found = (table.get("Parameters") or {} for table in self._tables(schema))
        return {
            parameters[_MARK_NAME]: parameters.get(_MARK_TEXT, "")
            for parameters in found
            if parameters.get(_TYPE) == _MARK and _MARK_NAME in parameters
        }

    # Schemas

    def create_schema(self, schema: str, location: str, properties: Mapping[str, str]) -> bool:
        """Create a schema; returns False if it exists.

        Raises:
            CatalogError: Its name has capital letters, or Glue refuses it.
            Unanswered: Glue failed; the schema may be created.
        """
        _require_folded(schema)
        parameters = dict(properties)
        comment = parameters.pop("comment", "")
        database = {
            "Name": schema,
            "Description": _printed(comment, _DESCRIPTION_LENGTH),
            "LocationUri": location.rstrip("/"),
            "Parameters": parameters,
        }

        def made() -> bool:
            return self.schema_properties(schema) == _schema_properties(database)

        try:
            self._change("create_database", schema, made, DatabaseInput=database)
        except Conflict:
            return False
        return True

    def drop_schema(self, schema: str) -> bool:
        """Drop a schema without members; returns False if it has members, also other than Iceberg's
        tables, such as marks.

        Glue deletes a database with all its tables, so its tables are listed directly before. A
        table that is created between the two requests is lost, and so are tables that Lake
        Formation hides from the role of this process.

        Raises:
            CatalogError: Glue refuses it.
            Unanswered: Glue failed; the schema may be dropped.
        """
        if next(self._tables(schema), None) is not None:
            return False
        if _is_folded(schema):
            try:
                self._change(
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
        """Create the entry of a table.

        Raises:
            Conflict: The name is taken, or the schema does not exist.
            CatalogError: It is a view, its name has capital letters, or Glue refuses it.
            Unanswered: Glue failed; the entry may be created.
        """
        if pointer.kind == "view":
            raise CatalogError(
                f"{_name(pointer.identifier)} is a view, and Iceberg keeps no views in AWS Glue. "
                "Nothing was changed. Build the model as a table."
            )
        table = {"Name": pointer.identifier[1]}
        self._create(pointer, _pointing(table, pointer.location, document))

    def swap(self, entry: Entry, location: str, document: Document) -> None:
        """Point an entry to another metadata file, if the entry is as it was read.

        What other engines have written to the entry stays, except for columns and the name of a
        former metadata file.

        Raises:
            Conflict: The entry has changed or is gone.
            CatalogError: Glue refuses it, or does not tell versions.
            Unanswered: Glue failed; the entry may be changed.
        """
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
            return location in (parameters.get(_LOCATION), parameters.get(_FORMER))

        self._change(
            "update_table",
            _name(identifier),
            made,
            DatabaseName=identifier[0],
            TableInput=_pointing(_kept(table), location, document),
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
        self._create(after, {**_kept(table), "Name": name[1]})
        try:
            if not self._drop(entry):
                raise Conflict(None, f"{_name(before.identifier)} is gone")
        except (CatalogError, Conflict) as error:
            self._undo_create(before, after, error)
            raise

    def drop(self, entry: Entry) -> None:
        """Drop an entry, without its files; nothing happens if it is gone.

        A change by another engine between the last look at the entry and its deletion is lost.

        Raises:
            Conflict: The entry has changed.
            CatalogError: Glue refuses it.
            Unanswered: Glue failed; the entry may be dropped.
        """
        self._drop(entry)

    # Marks

    def put_mark(self, schema: str, name: str, text: str) -> None:
        """Create or replace a mark; the last writer wins.

        Raises:
            CatalogError: The schema does not exist, or Glue refuses it.
            Unanswered: Glue failed; the mark may be written.
        """
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
        """Remove marks, if they exist.

        Raises:
            CatalogError: Glue refuses it.
            Unanswered: Glue failed; the marks may be removed.
        """
        if not _is_folded(schema):
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
            "Parameters": {_TYPE: _MARK, _MARK_NAME: name, _MARK_TEXT: text},
        }

        def made() -> bool:
            found = (self._table((schema, entry)) or {}).get("Parameters") or {}
            return bool(found.get(_MARK_TEXT) == text)

        put: dict[str, Any] = {"DatabaseName": schema, "TableInput": table}
        try:
            self._change("update_table", name, made, **put, SkipArchive=True)
        except Conflict:
            self._change("create_table", name, made, **put)

    def _drop_mark(self, schema: str, name: str) -> None:
        entry = _mark_entry(name)
        self._change(
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
        if not (_is_folded(schema) and _is_folded(name)):
            return None
        answer = self._read("get_table", DatabaseName=schema, Name=name)
        return None if answer is None else answer["Table"]

    def _tables(self, schema: str) -> Iterator[dict[str, Any]]:
        """Yield all that a schema has, of any format."""
        if _is_folded(schema):
            yield from self._pages("get_tables", "TableList", DatabaseName=schema)

    def _present(self, entry: Entry) -> dict[str, Any] | None:
        """Return what Glue has for an entry; None if it is gone.

        Raises:
            Conflict: The entry has changed.
        """
        identifier = entry.pointer.identifier
        table = self._table(identifier)
        if table is not None and _entry(identifier[0], table) != entry:
            raise Conflict(None, f"{_name(identifier)} has changed")
        return table

    def _create(self, pointer: Pointer, table: Mapping[str, Any]) -> None:
        schema, name = pointer.identifier
        _require_folded(schema)
        _require_folded(name)

        def made() -> bool:
            found = self.entry(pointer.identifier)
            return found is not None and found.pointer == pointer

        self._change(
            "create_table", _name(pointer.identifier), made, DatabaseName=schema, TableInput=table
        )

    def _drop(self, entry: Entry) -> bool:
        """Drop an entry; returns False if it is gone."""
        schema, name = entry.pointer.identifier
        if self._present(entry) is None:
            return False

        def made() -> bool:
            found = self.entry(entry.pointer.identifier)
            return found is None or found.pointer != entry.pointer

        self._change("delete_table", f"{schema}.{name}", made, DatabaseName=schema, Name=name)
        return True

    def _undo_create(self, before: Pointer, after: Pointer, error: Exception) -> None:
        try:
            found = self.entry(after.identifier)
            if found is not None:
                self._drop(Entry(after, found.token))
        except (CatalogError, Conflict, Unanswered) as undone:
            raise CatalogError(
                f"{_name(before.identifier)} could not be renamed to {_name(after.identifier)} "
                f"({error}), and the new name could not be removed ({undone}). Both names exist, "
                "with the same files. Drop one of them, without its files (no `purge`)."
            ) from error

    def _read(self, action: str, **parameters: Any) -> dict[str, Any] | None:
        """Return the answer to a request that changes nothing; None if there is no such entry."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self._glue, action)(**parameters)
        except (BotoCoreError, ClientError) as error:
            if _code(error) == _GONE:
                return None
            raise self._refused(action, error) from error
        return answer

    def _pages(self, action: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self._read(action, **parameters, **token)
            if answer is None:
                return
            yield from answer.get(key) or ()
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def _change(self, action: str, name: str, made: Callable[[], bool], **parameters: Any) -> None:
        """Carry out a change.

        The client sends a request again that was not answered. If the first one was carried out,
        the second is refused as a conflict with it. So the result is looked up if any answer was
        not clear.

        Args:
            action: The name of the client's method. A deletion of nothing is no conflict.
            name: What is changed, for messages.
            made: Looks up whether the change was made.
            parameters: The parameters of the method.

        Raises:
            Conflict: The change was not made, because of the present state.
            CatalogError: The change was not made, for another reason.
            Unanswered: It is not known whether the change was made.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        self._attempts.watched, self._attempts.unclear = True, False
        try:
            getattr(self._glue, action)(**parameters)
            return
        except (BotoCoreError, ClientError, _NotAgain) as error:
            code, failed = _code(error), error
        finally:
            self._attempts.watched = False
        if code == _GONE and action.startswith("delete"):
            return
        reason = f"{name}: {_said(failed)}"
        if not self._attempts.unclear:
            if code in _CONFLICTS:
                raise Conflict(None, reason) from failed
            raise self._refused(action, failed) from failed
        with suppress(CatalogError):
            if made():
                return
        # An answered conflict also means that the request before cannot be carried out any more.
        raise Unanswered(reason, lost=code not in _CONFLICTS) from failed

    def _refused(self, action: str, error: Exception) -> CatalogError:
        """Return the error of a request that changed nothing."""
        code = _code(error)
        verb = f"refused {action}" if code else "cannot be asked"
        return CatalogError(
            f"AWS Glue ({self._glue.meta.endpoint_url}) {verb}: {_said(error)} Nothing was "
            f"changed. {_ADVICE.get(code, _DEFAULT_ADVICE)}"
        )


class _NotAgain(Exception):
    """A deletion is not sent again after an unclear answer: the name may be another table's."""


class _Attempts(threading.local):
    """The attempts of the client to carry out the present change of a thread.

    Attributes:
        watched: Whether there is a change; PyIceberg has the same client.
        unclear: Whether an attempt may have been carried out without telling it.
    """

    watched = False
    unclear = False

    def sent(self, event_name: str, **_: Any) -> None:
        """Called by the client before each attempt."""
        if self.watched and self.unclear and event_name.rpartition(".")[2].startswith("Delete"):
            raise _NotAgain("no answer to the deletion")

    def answered(
        self, response_dict: Any, parsed_response: Any, exception: Exception | None, **_: Any
    ) -> None:
        """Called by the client after each attempt."""
        from botocore.exceptions import (
            ConnectTimeoutError,
            EndpointConnectionError,
            ProxyConnectionError,
        )

        not_sent = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
        if exception is not None:
            self.unclear |= not isinstance(exception, not_sent)
        elif response_dict["status_code"] >= 300:
            said = (parsed_response or {}).get("Error") or {}
            self.unclear |= response_dict["status_code"] >= 500 or said.get("Code") in _UNCLEAR


def _connect(name: str, properties: Mapping[str, str]) -> GlueCatalog:
    try:
        from botocore.exceptions import BotoCoreError
        from pyiceberg.catalog.glue import GlueCatalog
    except ImportError as error:
        raise ConfigError(
            f"A catalog of the type glue needs the package boto3 ({error}). Nothing was done. Run: "
            "pip install 'dbt-sparkwap[glue]'"
        ) from error
    tries = properties.get(_TRIES, "")
    if tries and not tries.isdecimal():
        raise ConfigError(
            f"{_TRIES} is {tries!r}; it has to be a number. Nothing was done. Correct it in "
            "`catalog` of the profile."
        )
    try:
        # The client requires a number.
        return GlueCatalog(name, **{**properties, **({_TRIES: int(tries)} if tries else {})})
    except (BotoCoreError, ValueError) as error:
        raise CatalogError(
            f"AWS Glue cannot be opened: {_said(error)} Nothing was done. {_DEFAULT_ADVICE}"
        ) from error


def _entry(schema: str, table: Mapping[str, Any]) -> Entry | None:
    """Return the entry of a table; None if it is not one of Iceberg."""
    parameters = table.get("Parameters") or {}
    location = parameters.get(_LOCATION)
    if str(parameters.get(_TYPE)).upper() != _ICEBERG or not location:
        return None
    # The database's name may be another one, if the schema is a link to a shared database.
    return Entry(Pointer((schema, table["Name"]), "table", location), table.get("VersionId"))


def _schema_properties(database: Mapping[str, Any]) -> dict[str, str]:
    found = dict(database.get("Parameters") or {})
    for key, text in (("location", "LocationUri"), ("comment", "Description")):
        if database.get(text):
            found[key] = database[text]
    return found


def _kept(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request has to repeat of a table, or it would be removed."""
    return {key: table[key] for key in _KEPT if table.get(key) is not None}


def _pointing(table: Mapping[str, Any], location: str, document: Document) -> dict[str, Any]:
    """Return a table's entry that points to a metadata file."""
    parameters = {**(table.get("Parameters") or {}), _TYPE: _ICEBERG, _LOCATION: location}
    # A former file may have rows that were erased since.
    parameters.pop(_FORMER, None)
    storage = {**(table.get("StorageDescriptor") or {})}
    properties = md.properties_of(document)
    others = [properties[key] for key in _OTHER_LOCATIONS if key in properties]
    if others:
        others = list(dict.fromkeys([*(storage.get("AdditionalLocations") or ()), *others]))
        storage["AdditionalLocations"] = others
    storage["Location"] = document["location"]
    storage["Columns"] = _columns(document, storage.get("Columns") or ())
    described = {}
    if "comment" in properties:
        described["Description"] = _printed(properties["comment"], _DESCRIPTION_LENGTH)
    return {
        **table,
        "TableType": "EXTERNAL_TABLE",
        **described,
        "Parameters": parameters,
        "StorageDescriptor": storage,
    }


def _columns(document: Document, before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns for people and for rights on columns; engines read the metadata file.

    They are those of all schemas of the table, the present ones first, as Iceberg writes them.
    PyIceberg's own function cannot be used, because it knows no types of format version 3.
    """
    comments = {column["Name"]: column["Comment"] for column in before if column.get("Comment")}
    present = current_schema(document)
    found: dict[str, dict[str, Any]] = {}
    for schema in (present, *(document.get("schemas") or ())):
        for field in schema.get("fields") or ():
            name = str(field["name"])
            if name in found:
                continue
            comment = field.get("doc") or comments.get(name)
            found[name] = {
                "Name": name,
                "Type": _type_text(field["type"]),
                **({"Comment": _printed(comment, _COMMENT_LENGTH)} if comment else {}),
                "Parameters": {
                    "iceberg.field.id": str(field["id"]),
                    "iceberg.field.optional": str(not field.get("required")).lower(),
                    "iceberg.field.current": str(schema is present).lower(),
                },
            }
    return list(found.values())


def _type_text(iceberg_type: str | Mapping[str, Any]) -> str:
    """Return the type of Hive that Iceberg writes to Glue for one of its types."""
    if isinstance(iceberg_type, str):
        if iceberg_type.startswith("decimal"):
            return iceberg_type.replace(" ", "")
        plain = re.split(r"[\[(]", iceberg_type)[0]
        return _TYPES.get(plain, plain)
    kind = iceberg_type["type"]
    if kind == "list":
        return f"array<{_type_text(iceberg_type['element'])}>"
    if kind == "map":
        key, value = (_type_text(iceberg_type[part]) for part in ("key", "value"))
        return f"map<{key},{value}>"
    fields = ",".join(f"{f['name']}:{_type_text(f['type'])}" for f in iceberg_type["fields"])
    return f"struct<{fields}>"


def _printed(text: str, length: int) -> str:
    """Return a text as Glue takes it: of limited length, and in one line."""
    return _NOT_PRINTED.sub(" ", text)[:length]


def _mark_entry(name: str) -> str:
    """Return the name of a mark's entry, for which Glue takes less than for a mark's name."""
    return f"wap_mark_{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _is_folded(name: str) -> bool:
    return name == name.lower()


def _require_folded(name: str) -> None:
    if not _is_folded(name):
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


def _code(error: Exception) -> str:
    """Return the name of an error of Glue; empty if it comes from this side."""
    response = getattr(error, "response", None)
    return str(response["Error"].get("Code", "")) if isinstance(response, Mapping) else ""


def _said(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
    return text if text.endswith(".") else f"{text}."
