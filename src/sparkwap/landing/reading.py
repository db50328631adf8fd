"""Reads a run's files, or replays the quarantined rows, into log rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any

from sparkwap.core import node
from sparkwap.landing import debezium, drift, formats, log
from sparkwap.landing.contents import look_into
from sparkwap.landing.drift import Mapped
from sparkwap.landing.entry import REPLAY, UNTIL, Entry, FileLayout, parse_entry
from sparkwap.landing.index import LISTING, Index
from sparkwap.landing.landing_files import LandingFile, layout_of
from sparkwap.landing.row_sql import text
from sparkwap.landing.unread import copies, files_to_read, parse_until, root_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class KnownFiles:
    """The files and columns that a log already has.

    Attributes:
        files: file name to SHA-256.
        dates: file name to load date.
        columns: file name to published columns.
        extras: the entity's columns that the entry does not name.
        batch: number of the last load; 0 for none.
    """

    files: Mapping[str, str]
    dates: Mapping[str, date | None]
    columns: Mapping[str, tuple[str, ...]]
    extras: tuple[str, ...]
    batch: int


_BY_ROW = ("json", "debezium")
"""Formats in which each row has its own columns."""
NOTHING = KnownFiles({}, {}, {}, (), 0)


@dataclass(frozen=True)
class Group:
    """Files, or rows of files, that are parsed in the same way.

    Attributes:
        layout: their layout.
        names: the names of the files, for messages.
        columns: the published columns, in order.
        paths: the paths of the files; in a replay, their names.
    """

    layout: FileLayout
    names: tuple[str, ...]
    columns: tuple[str, ...]
    paths: tuple[str, ...]


def model(dbt: Any, session: SparkSession) -> DataFrame:
    """Return the new log rows of a raw model; its body is ``return landing.model(dbt, session)``.

    The node's meta has ``landing``, the entry (see `sparkwap.landing.entry`), and ``drop``:
    ``root``, the landing folder (relative to the project), ``until``, the last load date to read
    or an empty text, and ``replay``, true to read only the quarantined rows again.
    ``SPARKWAP_LANDING_UNTIL`` and ``SPARKWAP_LANDING_REPLAY`` set them for one command.
    A run with ``as_of`` returns the log as of that time, and reads no file.

    Args:
        dbt: the ``dbt`` object of a Python model.
        session: the session of a Python model.

    Returns:
        The rows to append to the log: all rows of the files that this run reads.

    Raises:
        ConfigError: the meta has no landing folder.
        LandingError: the entry, the folder or a file is invalid.
    """
    here = node.current()
    entry = parse_entry(here.meta.get("landing"))
    if here.replay:
        return _as_of(session, entry, here)
    name = here.node_id.split(".")[-1]
    root = (here.project / root_of(name, here.meta)).resolve()
    drop = here.meta["drop"]
    table = session.table(f"{dbt.this}") if dbt.is_incremental else None
    known = known_log(table, entry) if table is not None else NOTHING
    reader = Reader(session, entry, known, here)
    if _is_true(here.settings.get(REPLAY) or drop.get("replay")):
        return reader.nothing() if table is None else reader.replay(table)
    until = parse_until(here.settings.get(UNTIL) or drop.get("until"))
    index = Index.of_model(here.target_folder, name, root, entry.path)
    # Not a setting: `dbt retry` would reuse the setting, and miss files that landed since.
    listing_id = os.environ.get(LISTING, "")
    return reader.read(files_to_read(root, entry, known.files, until, index, listing_id))


def _as_of(session: SparkSession, entry: Entry, here: node.Node) -> DataFrame:
    """Return the log as of the time of a run with ``as_of``.

    The log has all files that were read by then. The landing folder is not used, because its files
    change.
    """
    published = here.published()
    if published is None:
        return Reader(session, entry, NOTHING, here).nothing()
    return session.sql(f"select * from {published}")


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes")


def known_log(table: DataFrame, entry: Entry) -> KnownFiles:
    """Return the known files of a log: one query for its file rows, one for its last load."""
    own = [c for c in table.columns if not c.startswith("_")]
    rows = (
        table.where("_kind = 'file'")
        .select("_file_path", "_file_sha256", "_load_date", "_file_columns")
        .collect()
    )
    batch = table.selectExpr("max(_batch)").collect()[0][0]
    return KnownFiles(
        files={row["_file_path"]: row["_file_sha256"] for row in rows},
        dates={row["_file_path"]: row["_load_date"] for row in rows},
        columns={row["_file_path"]: tuple(row["_file_columns"] or ()) for row in rows},
        extras=tuple(c for c in own if c not in entry.columns),
        batch=batch or 0,
    )


def open_bad_rows(table: DataFrame) -> DataFrame:
    """Return the bad rows of a log that no later load has replaced, with all columns of the log."""
    bad = table.where("_kind = 'bad'").alias("b")
    later = table.where("_kind in ('row', 'bad')").alias("l")
    # The load date is the log's partition: Spark scans only the drops that have bad rows.
    same = "b._load_date = l._load_date and b._file_path = l._file_path and b._row = l._row"
    from pyspark.sql.functions import expr

    return bad.join(later, expr(f"{same} and l._batch > b._batch"), "left_anti")


@dataclass(frozen=True)
class Reader:
    """Reads for one model of one run."""

    session: SparkSession
    entry: Entry
    known: KnownFiles
    here: node.Node

    def nothing(self) -> DataFrame:
        """Return no rows."""
        columns = [*self.entry.columns, *self.known.extras]
        return self.session.createDataFrame([], log.schema(columns))

    # -- new files -------------------------------------------------------------------------------

    def read(self, files: Sequence[LandingFile]) -> DataFrame:
        """Return the log rows of some files.

        Raises:
            LandingError: a file cannot be read, or a required column is missing.
        """
        if not files:
            return self.nothing()
        again = copies(files, self.known.files, self.entry)
        for file, first in again.items():
            self.here.tell(f"{file.name} is a copy of {first}: skipped")
        fresh = [f for f in files if f not in again]
        looks = {file: look_into(file.path, file.layout, self.entry) for file in fresh}
        published = {file: looks[file].columns for file in fresh}
        published |= self._columns_of_rows([f for f in fresh if f.layout.format in _BY_ROW])
        groups = self._groups(fresh, published)
        columns, mapped = self._map(groups)
        undated = any(file.load_date is None for file in fresh)
        listed = self._listed(files, again, published, {f: look.rows for f, look in looks.items()})
        parts = [
            log.rows(
                self._parsed(group, mapping), listed, self.entry, group.layout, columns,
                self._has_code(group), undated,
            )
            for group, mapping in zip(groups, mapped, strict=True)
        ]  # fmt: skip
        rows = reduce(lambda a, b: a.unionByName(b), parts) if parts else None
        begins = bool(self.entry.sequence) and any(f.layout.load == "full" for f in fresh)
        file_rows = log.files(self._with_dates(listed, rows, begins, undated), columns)
        frame = file_rows if rows is None else rows.unionByName(file_rows)
        return log.stamped(frame, columns, self.known.batch + 1, self.here.run_id)

    def _groups(
        self, files: Sequence[LandingFile], published: Mapping[LandingFile, tuple[str, ...]]
    ) -> list[Group]:
        found: dict[tuple[FileLayout, tuple[str, ...]], list[LandingFile]] = {}
        for file in files:
            columns = () if file.layout.format in _BY_ROW else published[file]
            found.setdefault((file.layout, columns), []).append(file)
        return [
            Group(
                layout,
                tuple(f.name for f in members),
                _all_columns([published[f] for f in members]),
                tuple(str(f.path) for f in members),
            )
            for (layout, _), members in found.items()
            # Spark cannot read a Parquet file of 0 bytes.
            if layout.format != "parquet" or published[members[0]]
        ]

    def _columns_of_rows(self, files: Sequence[LandingFile]) -> dict[LandingFile, tuple[str, ...]]:
        """Return the columns of the rows of JSON files."""
        filled = [str(f.path) for f in files if f.bytes]
        found = self._keys(self._texts(filled, files[0].layout)) if filled else {}
        return {file: found.get(str(file.path), ()) for file in files}

    def _keys(self, texts: DataFrame) -> dict[str, tuple[str, ...]]:
        if self.entry.format == "debezium":
            return debezium.columns_by_path(debezium.envelopes(texts))
        return formats.json_columns(texts)

    def _texts(self, paths: Sequence[str], layout: FileLayout) -> DataFrame:
        if layout.format != "csv" and self.entry.multiline:
            return formats.documents(self.session, paths)
        return formats.lines(self.session, paths, layout.format == "csv" and layout.header)

    def _map(self, groups: Sequence[Group]) -> tuple[list[str], list[Mapped]]:
        """Return the entity's columns and the column mapping of each group; log the notices."""
        mapped, extras = [], list(self.known.extras)
        for group in groups:
            where = group.names[0]
            where += f" and {len(group.names) - 1} more" if len(group.names) > 1 else ""
            mapping = drift.map_columns(self.entry, group.layout, group.columns, extras, where)
            extras += mapping.new
            mapped.append(mapping)
            for notice in mapping.notices:
                self.here.tell(notice)
        columns = [*self.entry.columns, *extras]
        # A column that a later group adds is NULL in the groups before it.
        return columns, [replace(m, sources={c: m.sources.get(c, ()) for c in columns})
                         for m in mapped]  # fmt: skip

    def _has_code(self, group: Group) -> bool:
        return group.layout.format == "debezium" or group.layout.operation in group.columns

    def _parsed(self, group: Group, mapped: Mapped) -> DataFrame:
        entry, layout, columns = self.entry, group.layout, group.columns
        if layout.format == "parquet":
            return formats.parquet_rows(self.session, group.paths, entry, layout, columns, mapped)
        if layout.format == "csv" and entry.multiline:
            return formats.csv_records(self.session, group.paths, entry, layout, columns, mapped)
        return self._parse_texts(self._texts(group.paths, layout), group, mapped)

    def _parse_texts(self, texts: DataFrame, group: Group, mapped: Mapped) -> DataFrame:
        entry, layout, columns = self.entry, group.layout, group.columns
        if layout.format == "debezium":
            return debezium.rows(debezium.envelopes(texts), entry, columns, mapped)
        if layout.format == "csv":
            return formats.csv_rows(texts, entry, layout, columns, mapped)
        return formats.json_rows(texts, entry, layout, columns, mapped)

    def _listed(
        self,
        files: Sequence[LandingFile],
        again: Mapping[LandingFile, str],
        published: Mapping[LandingFile, tuple[str, ...]],
        rows: Mapping[LandingFile, int],
    ) -> DataFrame:
        return self.session.createDataFrame(
            [
                (
                    str(f.path), f.load_date or self.known.dates.get(again.get(f, "")), f.name,
                    _load(f.layout), f.sha256, f.bytes, rows.get(f, 0),
                    list(published.get(f, ())), again.get(f),
                )
                for f in files
            ],
            log.LISTED,
        )  # fmt: skip

    def _with_dates(
        self, listed: DataFrame, rows: DataFrame | None, begins: bool, undated: bool
    ) -> DataFrame:
        """Return the files with load dates and full-load starts, from their rows where needed.

        All files of a full load have the lowest start of its files: otherwise, the rows of one file
        would count as older than the load of another file.
        """
        start = "concat(cast(_load_date as string), '|0')"
        if rows is not None and (begins or undated):  # it reads the files a second time
            by_file = rows.groupBy("_file_path").agg({"_sequence": "min", "_load_date": "max"})
            by_file = by_file.selectExpr(
                "_file_path", "`min(_sequence)` as _least", "`max(_load_date)` as _day"
            )
            listed = (
                listed.join(by_file, "_file_path", "left")
                .selectExpr("*", "coalesce(_load_date, _day) as _settled_date")
                .drop("_load_date")
                .withColumnRenamed("_settled_date", "_load_date")
            )
            start = "min(_least) over (partition by _load, _load_date)" if begins else start
        return listed.selectExpr("*", f"if(_load = 'full', {start}, null) as _sequence")

    # -- replay of quarantined rows --------------------------------------------------------------

    def replay(self, table: DataFrame) -> DataFrame:
        """Return the bad rows that are valid by the current entry, to be appended to the log."""
        bad = open_bad_rows(table)
        waiting = [row[0] for row in bad.selectExpr("_file_path").distinct().collect()]
        groups = self._replay_groups(waiting)
        if not groups:
            return self.nothing()
        texts = bad.selectExpr("_file_path as _path", "_row as _line", "_raw as _text")
        listed = table.where("_kind = 'file'").selectExpr(
            "_file_path as _path", "_file_path", "_load_date", "_load"
        )
        columns, mapped = self._map(groups)
        parts = [
            log.rows(
                self._parse_texts(texts.where(_is_one_of("_path", group.paths)), group, mapping),
                listed, self.entry, group.layout, columns, self._has_code(group), undated=False,
            ).where("_kind = 'row'")
            for group, mapping in zip(groups, mapped, strict=True)
        ]  # fmt: skip
        rows = reduce(lambda a, b: a.unionByName(b), parts)
        return log.stamped(rows, columns, self.known.batch + 1, self.here.run_id)

    def _replay_groups(self, names: Sequence[str]) -> list[Group]:
        found: dict[tuple[FileLayout, tuple[str, ...]], list[str]] = {}
        for name in sorted(names):
            layout = layout_of(name.rpartition("/")[2], self.entry)
            if layout is None:
                self.here.tell(f"{name}: no layout of the entry matches; its rows stay bad")
                continue
            key = _as_texts(layout), self.known.columns.get(name, ())
            found.setdefault(key, []).append(name)
        return [
            Group(layout, tuple(members), columns, tuple(members))
            for (layout, columns), members in found.items()
        ]


def _load(layout: FileLayout) -> str:
    """Return ``_load`` of a file; rows that are all new count as changes."""
    return "full" if layout.load == "full" else "changes"


def _as_texts(layout: FileLayout) -> FileLayout:
    """Return the layout of raw texts in the log: those of Parquet rows are JSON objects."""
    return replace(layout, format="json") if layout.format == "parquet" else layout


def _all_columns(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for columns in lists for c in columns))


def _is_one_of(column: str, values: Sequence[str]) -> str:
    return f"{column} in ({', '.join(map(text, values))})"
