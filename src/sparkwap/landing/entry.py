"""The landing entry: the description of a raw model's files in its YAML.

The entry is ``config.meta.landing`` of the model:

=================== ===============================================================================
``entity``          name, for messages; also the folder of the files if ``path`` is not set
``kind``            ``extract``: each drop is the whole table; ``changes``: changes of the table;
                    ``stream``: changes or new rows, as messages of a Kafka topic
``format``          one of `formats.FORMATS`, default ``csv``; a layout may override it
``path``            folder below the landing folder, or a glob of folders; default ``<entity>``.
                    It contains ``load_date=YYYY-MM-DD/`` folders, or the files themselves
``topic``           the Kafka topic of a ``stream``, whose values are ``json`` or ``debezium``.
                    ``kafka.offset`` and ``kafka.timestamp`` (milliseconds) may be named in
                    ``sequence`` and ``event_time``
``load``            for a stream of ``json``: ``inserts`` (default), each message is a new row;
                    ``changes`` (default with ``operation``); ``upserts``, a message is the new
                    state of its key, and one without a value deletes the key of the message, a
                    JSON object or the value of the one key column
``topic_id``        the id of the topic, where it was created again and has to be read from its
                    beginning; default: the one that was read first
``skip_to``         id of the topic to partition to the offset to read from, past messages that are
                    lost
``load_date``       regular expression whose group is the date (YYYYMMDD or YYYY-MM-DD) in the
                    name of a file outside of ``load_date=`` folders. If it does not match, the
                    load date is the day of the file's latest event
``columns``         name to Spark type of the columns to keep
``key``             the columns that identify a row
``sequence``        column to type of the columns that order the changes, the most significant
                    first. For Debezium, a path in the envelope; its default is ``source.lsn``.
                    Not for ``extract``, which is ordered by load date
``event_time``      the column with the time of a change (a time, or milliseconds since 1970).
                    Default: ``source.ts_ms`` of a Debezium envelope, the first timestamp in
                    ``sequence``, or the load date
``files``           list of layouts: ``match`` (file-name pattern), ``load`` (one of the first
                    three of `LOADS`), ``header``, ``operation``, ``codes``, ``format``. The first
                    match applies
``operation``       the column with the operation code; a layout may override it
``codes``           code to one of `OPERATIONS`; a layout may override it
``partial``         an absent column means *unchanged*; default only for ``debezium``
``renames``         published column name to column
``on_new_columns``  ``append`` (default), ``ignore``, ``fail``
``on_wider_types``  handling of a value that needs a wider type (bigint for int, more digits for a
                    decimal): ``widen`` (default), if the staging models use ``exact_cast`` (see
                    macros/cdc), or ``quarantine``
``rules``           name to SQL condition on the typed columns; a row for which it is false is bad,
                    unless the row is a delete or truncate
``threshold``       how many rows of a load may be bad: a count, or a share below 1; default 0
``multiline``       values contain line breaks (CSV), or a file is one JSON document
``delimiter``       delimiter of CSV; default a comma
``max_bytes``       maximum size of a file, and of its inflated text; default 5 GB
``max_ratio``       maximum compression ratio of a file with more than 64 MB of text; default 250
``max_row_bytes``   maximum size of a row: a line, a record with line breaks, a JSON document;
                    default 32 MB
=================== ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("extract", "changes", "stream")
LOADS = ("full", "changes", "inserts", "upserts")
OPERATIONS = ("load", "insert", "update", "delete", "truncate")
STATE_COLUMNS = ("row_hash",)
"""Columns of a state that do not begin with ``_``; an entity cannot have columns of these names."""
LIMITS = {"max_bytes": 5_000_000_000, "max_ratio": 250, "max_row_bytes": 32_000_000}
"""The settings that limit a file, with their defaults."""
UNTIL, REPLAY = "SPARKWAP_LANDING_UNTIL", "SPARKWAP_LANDING_REPLAY"
"""Environment variables that set `landing_until` and `landing_replay` for one command."""


@dataclass(frozen=True)
class FileLayout:
    """The layout of some of an entity's files.

    Attributes:
        match: file-name pattern.
        load: one of `LOADS`: the whole table, changes with an operation each, only new rows, such
            as readings, or the new states of keys, as in a compacted topic.
        format: one of `formats.FORMATS`.
        operation: the column with the operation code; the first column in files without a header.
        codes: pairs of an operation code and its meaning, one of `OPERATIONS`.
    """

    match: str
    load: str
    format: str
    header: bool = True
    operation: str | None = None
    codes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """One entity of a source; the module's docstring describes the fields.

    Attributes:
        sequence: pairs of column and type.
        event_time: a pair of column and type, or None.
        threshold: a count (int) or a share (float).
        topic: the Kafka topic of a stream; empty for files.
        skip_to: id of the topic to partition to offset.
    """

    entity: str
    kind: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    layouts: tuple[FileLayout, ...]
    path: str = ""
    topic: str = ""
    topic_id: str = ""
    skip_to: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    load_date: str | None = None
    sequence: tuple[tuple[str, str], ...] = ()
    event_time: tuple[str, str] | None = None
    partial: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    on_new_columns: str = "append"
    on_wider_types: str = "widen"
    rules: Mapping[str, str] = field(default_factory=dict)
    threshold: int | float = 0
    multiline: bool = False
    delimiter: str = ","
    max_bytes: int = LIMITS["max_bytes"]
    max_ratio: int = LIMITS["max_ratio"]
    max_row_bytes: int = LIMITS["max_row_bytes"]

    @property
    def service_columns(self) -> frozenset[str]:
        """Published columns with metadata of a row, which the log does not keep as columns."""
        named = {layout.operation for layout in self.layouts if layout.operation}
        named |= {name for name, _ in self.sequence}
        named |= {self.event_time[0]} if self.event_time else set()
        return frozenset(named - set(self.columns))
