"""Landing files into an append-only change log, each file exactly once.

A *drop* is all that has one load date. The raw table of an entity is its change log, and the list
of the files read at the same time: each file leaves its rows and one row for itself
(``_kind = 'file'``), in one commit, so that no crash can part the two, and an empty file is seen.

What a raw table has beside the entity's own columns (all text, as published; an empty field is
NULL):

================= ============= ===================================================================
``_op``           string        ``load`` (row of a full load), ``insert``, ``update``, ``delete``,
                                ``truncate``; NULL where ``_kind`` is not ``row``
``_sequence``     string        the source's order as a text that sorts like it; '' is the lowest
``_event_time``   timestamp     when it happened at the source (UTC), else the load date
``_absent``       array<string> columns that a partial row does not state; NULL: it states all
``_load_date``    date          the drop that brought it
``_file_path``    string        path below the landing folder
``_row``          bigint        position in the file, from 1, header not counted
``_part``         int           0; an update that changes the key is a delete (0) and an insert (1)
``_batch``        bigint        number of the load that read it, 1, 2, ...
``_run``          string        dbt's invocation id of that load
``_kind``         string        ``row``; ``bad``, a row that cannot be used; ``skipped``, one that
                                is counted only (tombstone, schema change); ``file``
``_raw``          string        the text of a bad or skipped row
``_error``        string        the first reason why; of a ``file``, why it was not read again
``_load``         string        ``full`` (the file is a whole state), ``changes`` or ``inserts``
``_file_sha256``  string        digest of the file's bytes; on ``file`` rows only, like the next
``_file_bytes``   bigint        size of the file
``_file_rows``    bigint        rows in it, counted without Spark
``_file_columns`` array<string> its columns as published
================= ============= ===================================================================

On the ``file`` row of a full load ``_sequence`` is where that load begins. The events of a table
are ordered by ``_sequence``, ``_file_path``, ``_row``, ``_part``. A bad row that `replay` brings
back is followed by a ``row`` with the same ``_file_path`` and ``_row``, and a greater ``_batch``.

A row that cannot be split or typed goes to quarantine with its text and the reason. A *file* that
cannot be read as a whole (broken archive, not UTF-8) fails its table, and no other.
"""

from sparkwap.landing.contents import look_into
from sparkwap.landing.entry import FORMATS, KINDS, LOADS, OPERATIONS, Entry, FileLayout, parse_entry
from sparkwap.landing.errors import LandingError
from sparkwap.landing.files import LandingFile, list_files
from sparkwap.landing.reading import model, open_bad_rows
from sparkwap.landing.unread import choose, copies, parse_until, pending, root_of

__all__ = [
    "FORMATS",
    "KINDS",
    "LOADS",
    "OPERATIONS",
    "Entry",
    "FileLayout",
    "LandingError",
    "LandingFile",
    "choose",
    "copies",
    "list_files",
    "look_into",
    "model",
    "open_bad_rows",
    "parse_entry",
    "parse_until",
    "pending",
    "root_of",
]
