"""Reading a run's files, or the quarantined rows once more, into log rows."""

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
from sparkwap.landing.files import LandingFile, layout_of
from sparkwap.landing.index import LISTING, Index
from sparkwap.landing.sql import text
from sparkwap.landing.unread import copies, files_to_read, parse_until, root_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class KnownFiles:
    """What a log holds already.

    Attributes:
        files: name to SHA-256 of the files read.
        dates: name to load date of them.
        columns: name to published columns of them.
        extras: own columns that the entry does not name.
        batch: number of the last load; 0 for none.
    """

    files: Mapping[str, str]
    dates: Mapping[str, date | None]
    columns: Mapping[str, tuple[str, ...]]
    extras: tuple[str, ...]
    batch: int


_BY_ROW = ("json", "debezium")
"""Formats in which each row says its own columns."""
NOTHING = KnownFiles({}, {}, {}, (), 0)


@dataclass(frozen=True)
class Group:
    """Files, or rows of files, that are taken apart alike.

    Attributes:
        layout: how they look.
        names: the files, for messages.
        columns: the published columns, in order.
        paths: the files' paths, or in a replay their names.
    """

    layout: FileLayout
    names: tuple[str, ...]
    columns: tuple[str, ...]
    paths: tuple[str, ...]


def model(dbt: Any, session: SparkSession) -> DataFrame:
    """All that a raw model has to say: ``return landing.model(dbt, session)``.

    The node's meta has ``landing``, the entry (see `sparkwap.landing.entry`), and ``drop``:
    ``root``, the landing folder (relative to the project), ``until``, the last load date to read
    or an empty text, and ``replay``, true to read the quarantined rows again and no new files;
    ``SPARKWAP_LANDING_UNTIL`` and ``SPARKWAP_LANDING_REPLAY`` say so for one call.
    In a run with ``as_of`` the log is what it was then, and no file is read.

    Args:
        dbt: the object that dbt hands to a Python model.
        session: the session that dbt hands to a Python model.

    Returns:
        The rows to append to the log: all rows of the files that this run takes.

    Raises:
        ConfigError: the meta names no landing folder.
        LandingError: the entry, the folder or a file cannot be used.
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
    # Not a setting: `dbt retry` would have it, too, and not see what has landed since.
    listing_id = os.environ.get(LISTING, "")
    return reader.read(files_to_read(root, entry, known.files, until, index, listing_id))


def _as_of(session: SparkSession, entry: Entry, here: node.Node) -> DataFrame:
    """The log as it was at the moment of a replay.

    It holds each file that was read by then, so that the landing folder, where files come and go,
    is not asked.
    """
    published = here.published()
    if published is None:
        return Reader(session, entry, NOTHING, here).nothing()
    return session.sql(f"select * from {published}")


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes")


def known_log(table: DataFrame, entry: Entry) -> KnownFiles:
    """Look up what a log holds: one query on its file rows, one for its last load."""
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
    """The bad rows of a log that no later load has replaced, with all of the log's columns."""
    bad = table.where("_kind = 'bad'").alias("b")
    later = table.where("_kind in ('row', 'bad')").alias("l")
    # The load date is the log's partition: only the drops that have bad rows are looked at.
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
        """No rows."""
        columns = [*self.entry.columns, *self.known.extras]
        return self.session.createDataFrame([], log.schema(columns))

    # -- new files -------------------------------------------------------------------------------

    def read(self, files: Sequence[LandingFile]) -> DataFrame:
        """The log rows of some files.

        Raises:
            LandingError: a file cannot be read, or lacks what it must have.
        """
        if not files:
            return self.nothing()
        again = copies(files, self.known.files, self.entry)
        for file, first in again.items():
            self.here.tell(f"{file.name} is {first} once more: skipped")
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
                self._parsed(group, one), listed, self.entry, group.layout, columns,
                self._has_code(group), undated,
            )
            for group, one in zip(groups, mapped, strict=True)
        ]  # fmt: skip
        rows = reduce(lambda a, b: a.unionByName(b), parts) if parts else None
        begins = bool(self.entry.sequence) and any(f.layout.load == "full" for f in fresh)
        marks = log.files(self._settled(listed, rows, begins, undated), columns)
        frame = marks if rows is None else rows.unionByName(marks)
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
            # A Parquet file of 0 bytes is none that Spark could read.
            if layout.format != "parquet" or published[members[0]]
        ]

    def _columns_of_rows(self, files: Sequence[LandingFile]) -> dict[LandingFile, tuple[str, ...]]:
        """The columns that the rows of JSON files have."""
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
        """The log's own columns, and where each group's columns go. Tells what is new."""
        mapped, extras = [], list(self.known.extras)
        for group in groups:
            where = group.names[0]
            where += f" and {len(group.names) - 1} more" if len(group.names) > 1 else ""
            one = drift.map_columns(self.entry, group.layout, group.columns, extras, where)
            extras += one.new
            mapped.append(one)
            for notice in one.notices:
                self.here.tell(notice)
        columns = [*self.entry.columns, *extras]
        # A column that a later group has brought is NULL in the groups before it.
        return columns, [
            replace(one, sources={c: one.sources.get(c, ()) for c in columns}) for one in mapped
        ]

    def _has_code(self, group: Group) -> bool:
        return group.layout.format == "debezium" or group.layout.operation in group.columns

    def _parsed(self, group: Group, mapped: Mapped) -> DataFrame:
        entry, layout, columns = self.entry, group.layout, group.columns
        if layout.format == "parquet":
            return formats.parquet_rows(self.session, group.paths, entry, layout, columns, mapped)
        if layout.format == "csv" and entry.multiline:
            return formats.csv_records(self.session, group.paths, entry, layout, columns, mapped)
        return self._taken_apart(self._texts(group.paths, layout), group, mapped)

    def _taken_apart(self, texts: DataFrame, group: Group, mapped: Mapped) -> DataFrame:
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

    def _settled(
        self, listed: DataFrame, rows: DataFrame | None, begins: bool, undated: bool
    ) -> DataFrame:
        """The files, with what only their rows tell: load date, and where a full load begins.

        All files of a full load begin where the first of them does: the rows of one must not be
        taken for what was there before another.
        """
        start = "concat(cast(_load_date as string), '|0')"
        if rows is not None and (begins or undated):  # else it would be a second reading for naught
            told = rows.groupBy("_file_path").agg({"_sequence": "min", "_load_date": "max"})
            told = told.selectExpr(
                "_file_path", "`min(_sequence)` as _least", "`max(_load_date)` as _day"
            )
            listed = (
                listed.join(told, "_file_path", "left")
                .selectExpr("*", "coalesce(_load_date, _day) as _settled_date")
                .drop("_load_date")
                .withColumnRenamed("_settled_date", "_load_date")
            )
            start = "min(_least) over (partition by _load, _load_date)" if begins else start
        return listed.selectExpr("*", f"if(_load = 'full', {start}, null) as _sequence")

    # -- quarantined rows once more --------------------------------------------------------------

    def replay(self, table: DataFrame) -> DataFrame:
        """Those bad rows that are good by the present entry, to be appended to the log."""
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
                self._taken_apart(texts.where(_is_one_of("_path", group.paths)), group, one),
                listed, self.entry, group.layout, columns, self._has_code(group), undated=False,
            ).where("_kind = 'row'")
            for group, one in zip(groups, mapped, strict=True)
        ]  # fmt: skip
        rows = reduce(lambda a, b: a.unionByName(b), parts)
        return log.stamped(rows, columns, self.known.batch + 1, self.here.run_id)

    def _replay_groups(self, names: Sequence[str]) -> list[Group]:
        found: dict[tuple[FileLayout, tuple[str, ...]], list[str]] = {}
        for name in sorted(names):
            layout = layout_of(name.rpartition("/")[2], self.entry)
            if layout is None:
                self.here.tell(f"{name}: no layout of the entry matches it; its rows stay")
                continue
            key = _as_texts(layout), self.known.columns.get(name, ())
            found.setdefault(key, []).append(name)
        return [
            Group(layout, tuple(members), columns, tuple(members))
            for (layout, columns), members in found.items()
        ]


def _load(layout: FileLayout) -> str:
    """What the log says of a file: to a reader of it, rows that are all new are changes."""
    return "full" if layout.load == "full" else "changes"


def _as_texts(layout: FileLayout) -> FileLayout:
    """The layout for raw texts out of the log: those of Parquet rows are JSON objects."""
    return replace(layout, format="json") if layout.format == "parquet" else layout


def _all_columns(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for columns in lists for c in columns))


def _is_one_of(column: str, values: Sequence[str]) -> str:
    return f"{column} in ({', '.join(map(text, values))})"
