"""Read landing files or messages into an append-only change log, each exactly once.

A *drop* is all files with one load date. The raw table of an entity contains its change log and the
list of the files that were read. Each file adds its rows and one row for itself
(``_kind = 'file'``) in one commit. So a crash cannot separate them, and empty files are recorded.

A raw table has the entity's own columns (all text, as published; an empty field is NULL) and these:

================= ============= ===================================================================
``_op``           string        ``load`` (row of a full load), ``insert``, ``update``, ``delete``,
                                ``truncate``; NULL where ``_kind`` is not ``row``
``_sequence``     string        the source's order, as sortable text; '' is the lowest value
``_event_time``   timestamp     time of the change at the source (UTC), else the load date
``_absent``       array<string> columns that a partial row does not have; NULL if it has all columns
``_load_date``    date          load date of the drop
``_file_path``    string        path below the landing folder
``_row``          bigint        position in the file, from 1, header not counted
``_part``         int           0; an update that changes the key is a delete (0) and an insert (1)
``_batch``        bigint        number of the load that read the row; later loads have higher ones
``_run``          string        dbt's invocation id of that load
``_kind``         string        ``row``; ``bad``, a row that cannot be used; ``skipped``, a row that
                                is only counted (tombstone, schema change); ``file``
``_raw``          string        the text of a bad or skipped row
``_error``        string        the first reason; for a ``file``, why it was not read again
``_load``         string        ``full`` (the file is a whole state), ``changes`` or ``inserts``
``_file_sha256``  string        digest of the file's bytes, after ``erased:`` if an erasure took
                                rows; this and the next three columns are set on ``file`` rows only
``_file_bytes``   bigint        size of the file
``_file_rows``    bigint        number of rows in the file, counted without Spark
``_file_columns`` array<string> the file's columns as published
================= ============= ===================================================================

The log of a Kafka topic (see ``docs/streams.md``) also has ``_message_key``, ``_message_time`` and
``_message_headers``. There a range of offsets of a partition is a file, and ``_row`` is the offset.

On the ``file`` row of a full load, ``_sequence`` is the lowest sequence of that load. The events of
a table are ordered by ``_sequence``, ``_file_path``, ``_row``, ``_part``. If a replay accepts a bad
row, it adds a ``row`` with the same ``_file_path`` and ``_row``, and a greater ``_batch``.

A row that cannot be split or typed goes to quarantine with its text and the reason. A *file* that
cannot be read as a whole (broken archive, not UTF-8) fails its table, but no other table.
"""

from sparkwap.landing.entry import KINDS, Entry
from sparkwap.landing.entry_parsing import parse_entry
from sparkwap.landing.errors import LandingError
from sparkwap.landing.formats import look_into
from sparkwap.landing.landing_files import LandingFile, list_files
from sparkwap.landing.reading import model
from sparkwap.landing.unread import choose, copies, parse_until, pending, root_of

__all__ = [
    "KINDS",
    "Entry",
    "LandingError",
    "LandingFile",
    "choose",
    "copies",
    "list_files",
    "look_into",
    "model",
    "parse_entry",
    "parse_until",
    "pending",
    "root_of",
]
