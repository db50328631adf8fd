"""Reads a run's files, or replays the quarantined rows, into log rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core import node
from sparkwap.core.personal import ERASED_FILE
from sparkwap.core.text import some_of
from sparkwap.landing import drift, kafka, log, messages
from sparkwap.landing.contents import Contents
from sparkwap.landing.entry import REPLAY, UNTIL, Entry, FileLayout
from sparkwap.landing.entry_parsing import parse_entry
from sparkwap.landing.errors import AGAIN, LandingError, any_of
from sparkwap.landing.formats import FORMATS, look_into
from sparkwap.landing.formats.base import Group
from sparkwap.landing.formats.json_format import JsonFormat
from sparkwap.landing.index import LISTING, Index
from sparkwap.landing.landing_files import LandingFile, layout_of, unchanged
from sparkwap.landing.log_state import NOTHING, KnownFiles, known_log, open_bad_rows, read_known
from sparkwap.landing.row_sql import text
from sparkwap.landing.topic import (
    Known,
    Range,
    TopicState,
    needs_keys,
    read_name,
    unread_ranges,
)
from sparkwap.landing.unread import copies, edited, files_to_read, parse_until, root_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EMPTY = Contents((), 0)
_NO_KEY = "the message has no key, so its offset does not order it after those of other partitions"


def model(dbt: Any, session: SparkSession) -> DataFrame:
    """Return the new log rows of a raw model; its body is ``return landing.model(dbt, session)``.

    The node's meta has ``landing``, the entry (see `sparkwap.landing.entry`), and ``drop``:
    ``root``, the landing folder (relative to the project), ``until``, the last load date to read
    or an empty text, and ``replay``, true to read only the quarantined rows again.
    ``SPARKWAP_LANDING_UNTIL`` and ``SPARKWAP_LANDING_REPLAY`` set them for one command.
    A run with ``as_of`` returns the log as of that time, and reads no file.

    Raises:
        ConfigError: the meta has no landing folder.
        LandingError: the entry, the folder or a file is invalid.
    """
    here = node.current()
    entry = parse_entry(here.meta.get("landing"))
    # Of this session: local times would neither sort, where clocks are set back, nor mean UTC.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    if here.replay:
        return _as_of(session, entry, here)
    name = here.node_id.split(".")[-1]
    root = (here.project / root_of(name, here.meta, entry)).resolve()
    drop = here.meta.get("drop") or {}
    table = session.table(f"{dbt.this}") if dbt.is_incremental else None
    replays = _is_true(here.settings.get(REPLAY) or drop.get("replay"))
    # The position in a topic is one query, however many ranges were read.
    with_files = replays or not entry.topic
    known = known_log(table, entry, with_files) if table is not None else NOTHING
    reader = Reader(session, entry, known, here)
    if replays:
        return reader.nothing() if table is None else reader.replay(table)
    published = here.published() if table is None else None
    before = session.sql(f"select * from {published}") if published is not None else None
    if entry.topic:
        settings = kafka.connection(name, here.meta)
        state = kafka.state(settings, entry.topic)
        if before is not None:
            require_all_messages(entry, before, state)
        had = read_known(table, entry.topic) if table is not None else Known()
        ranges = unread_ranges(entry, had, state)
        options = kafka.spark_options(settings)
        return reader.read_messages(ranges, options, len(state.offsets))
    until = parse_until(here.settings.get(UNTIL) or drop.get("until"))
    index = Index.of_model(here.target_folder, name, root, entry.path)
    # Not a setting: `dbt retry` would reuse the setting, and miss files that landed since.
    listing_id = os.environ.get(LISTING, "")
    files = files_to_read(root, entry, known.files, until, index, listing_id)
    if changed := edited(known.files, index):
        here.tell(
            f"{some_of(changed)}: the content is not that which was read. Nothing is read of it, "
            "because an erasure has named the file. Deliver a correction as a new file."
        )
    if before is not None:
        require_all_files(entry, known_log(before, entry, with_files=True), index)
    rows = reader.read(files)
    require_unchanged(files, index)
    return rows


def require_unchanged(files: Sequence[LandingFile], index: Index) -> None:
    """Check that files still have the content of their digests, after a look into them.

    Spark reads them later. The audit `files_add_up` notices rows that are added until then.
    """
    changed = [file for file in files if not unchanged([file], index)]
    if changed:
        raise LandingError(
            f"{changed[0].path} has changed while it was read. Nothing was read from this drop; "
            f"main is as it was. Wait until its upload is complete, then {AGAIN}"
        )


def require_all_files(entry: Entry, known: KnownFiles, index: Index) -> None:
    """Check that the landing folder has what a published log has; see `require_all_messages`.

    Args:
        index: the index, with all files of the folder.
    """
    there = {row.sha256 for row in index.rows.values()}
    gone = sorted(
        name
        for name, digest in known.files.items()
        if digest.removeprefix(ERASED_FILE) not in there
        and not (digest.startswith(ERASED_FILE) and name in index.rows)
    )
    if gone:
        more = f" and {len(gone) - 1:,} more" if gone[1:] else ""
        raise _refresh_refused(
            f"the log of '{entry.entity}' has read {gone[0]}{more}, which the landing folder no "
            "longer has"
        )


def require_all_messages(entry: Entry, published: DataFrame, state: TopicState) -> None:
    """Check that Kafka still has what a published log has, before a full refresh reads it again."""
    known = read_known(published, entry.topic)
    gone = known.others or any(
        topic_id != state.topic_id or oldest > 0 or end < at
        for (topic_id, partition), at in known.positions.items()
        for oldest, end in [state.offsets.get(partition, (1, 1))]
    )
    if gone:
        raise _refresh_refused(
            f"the log of the topic '{entry.topic}' has messages that Kafka no longer has, or rows "
            "of files or other topics"
        )


def _refresh_refused(why: str) -> LandingError:
    return LandingError(
        f"A full refresh would lose rows: {why}. Nothing was read; main is as it was. Build "
        "without --full-refresh, and set `+full_refresh: false` for raw models in dbt_project.yml"
    )


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


@dataclass(frozen=True)
class Reader:
    """Reads for one model of one run."""

    session: SparkSession
    entry: Entry
    known: KnownFiles
    here: node.Node

    def _next_batch(self) -> int:
        """Return the number of this load: milliseconds since 1970, above all loads of the log.

        A count would give the number of a load that was rolled back to the next one, and tables
        that have read the former would take the latter for it.
        """
        return max(self.known.batch + 1, time.time_ns() // 1_000_000)

    def nothing(self) -> DataFrame:
        """Return no rows."""
        columns = [*self.entry.columns, *self.known.extras]
        return self.session.createDataFrame([], log.schema(columns, self.entry))

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
        columns_of = self._columns_of_rows(fresh)
        looks = {f: replace(look, columns=columns_of.get(f, look.columns))
                 for f, look in looks.items()}  # fmt: skip
        self._tell_of_reloads(looks)
        return self._log(
            files, again, looks, lambda g: FORMATS[g.layout.format].rows(self.session, g)
        )

    def _tell_of_reloads(self, looks: Mapping[LandingFile, Contents]) -> None:
        """Log a notice of later full loads that have no place among the changes."""
        order = {name for name, _ in self.entry.sequence}
        dates = [d for d in (*self.known.dates.values(), *(f.load_date for f in looks)) if d]
        late = [
            file.name
            for file, look in looks.items()
            if order and look.rows and file.layout.load == "full"
            and file.load_date and file.load_date > min(dates)
            and not order & {*look.columns}
        ]  # fmt: skip
        if late:
            more = f" and {len(late) - 1:,} more" if late[1:] else ""
            self.here.tell(
                f"{late[0]}{more}: a full load without the columns that order the changes "
                f"({any_of(order)}). Its rows count as older than all changes, also those of "
                "earlier load dates, and it deletes no key. A new load of the whole table needs "
                "these columns"
            )

    def read_messages(
        self, ranges: Sequence[Range], options: Mapping[str, str], partitions: int
    ) -> DataFrame:
        """Return the log rows of ranges of messages, each of which is a file of the log.

        Args:
            ranges: at most one range for each partition of the topic.
            partitions: the number of partitions of the topic.
        """
        if not ranges:
            return self.nothing()
        (layout,) = self.entry.layouts
        texts, format_ = messages.messages(self.session, ranges, options), self._of_values()
        looks, sizes = messages.look(format_.keys(texts, self.entry))
        today = datetime.now(UTC).date()
        files = [
            LandingFile(Path(r.name), r.name, today, layout, "", sizes.get(r.name, 0))
            for r in ranges
        ]
        return self._log(
            files, {}, {file: looks.get(file.name, EMPTY) for file in files},
            lambda group: self._with_keys(format_.parse(texts, group), partitions),
        )  # fmt: skip

    def _with_keys(self, rows: DataFrame, partitions: int) -> DataFrame:
        """Return the rows of messages; those that lack the key that they need are bad."""
        from pyspark.sql.functions import expr

        if not needs_keys(self.entry, partitions):
            return rows
        return rows.withColumn(
            "_broken", expr(f"coalesce(_broken, if(_message_key is null, {text(_NO_KEY)}, null))")
        )

    def _log(
        self,
        files: Sequence[LandingFile],
        again: Mapping[LandingFile, str],
        looks: Mapping[LandingFile, Contents],
        rows_of: Callable[[Group], DataFrame],
    ) -> DataFrame:
        """Return the log rows of files.

        Args:
            again: those that are copies, with the first names.
            looks: the contents of the others.
            rows_of: returns the frame of the rows of some files.
        """
        published = {file: look.columns for file, look in looks.items()}
        columns, groups = self._map(self._groups(looks))
        undated = any(file.load_date is None for file in looks)
        listed = self._listed(files, again, published, {f: look.rows for f, look in looks.items()})
        parts = [
            log.rows(
                rows_of(group), listed, self.entry, group.layout, columns, _has_code(group), undated
            )
            for group in groups
        ]
        rows = reduce(lambda a, b: a.unionByName(b), parts) if parts else None
        begins = bool(self.entry.sequence) and any(f.layout.load == "full" for f in looks)
        file_rows = log.files(self._with_dates(listed, rows, begins, undated), columns, self.entry)
        frame = file_rows if rows is None else rows.drop("_bad_sequence").unionByName(file_rows)
        return log.stamped(frame, columns, self.entry, self._next_batch(), self.here.run_id)

    def _groups(self, looks: Mapping[LandingFile, Contents]) -> list[Group]:
        found: dict[tuple[Any, ...], list[LandingFile]] = {}
        for file, look in looks.items():
            columns = () if FORMATS[file.layout.format].columns_by_row else look.columns
            found.setdefault((file.layout, columns, look.types, look.crlf), []).append(file)
        return [
            Group(
                self.entry,
                layout,
                tuple(f.name for f in members),
                _all_columns([looks[f].columns for f in members]),
                tuple(str(f.path) for f in members),
                crlf=crlf,
            )
            for (layout, columns, _, crlf), members in found.items()
            # A file without columns has no rows: Spark cannot read a Parquet file of 0 bytes.
            if columns or FORMATS[layout.format].columns_by_row
        ]

    def _columns_of_rows(self, files: Sequence[LandingFile]) -> dict[LandingFile, tuple[str, ...]]:
        """Return the columns of the files in which each row has its own columns."""
        found: dict[LandingFile, tuple[str, ...]] = {}
        for name in {file.layout.format: None for file in files if file.bytes}:
            own = {str(f.path): f for f in files if f.bytes and f.layout.format == name}
            layout = next(iter(own.values())).layout
            group = Group(self.entry, layout, (), (), tuple(own))
            columns = FORMATS[name].row_columns(self.session, group)
            found |= {own[path]: names for path, names in columns.items()}
        return found

    def _map(self, groups: Sequence[Group]) -> tuple[list[str], list[Group]]:
        """Return the entity's columns, and the groups with their sources; log the notices."""
        mapped, extras = [], list(self.known.extras)
        for group in groups:
            where = group.names[0]
            where += f" and {len(group.names) - 1} more" if len(group.names) > 1 else ""
            mapping = drift.map_columns(self.entry, group.layout, group.columns, extras, where)
            extras += mapping.new
            usable = tuple(c for c in group.columns if c not in mapping.refused)
            refused = () if self.entry.on_new_columns == "ignore" else mapping.refused
            mapped.append(replace(group, columns=usable, sources=mapping.sources, refused=refused))
            for notice in mapping.notices:
                self.here.tell(notice)
        columns = [*self.entry.columns, *extras]
        # A column that a later group adds is NULL in the groups before it.
        return columns, [replace(g, sources={c: g.sources.get(c, ()) for c in columns})
                         for g in mapped]  # fmt: skip

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
                    _load(f.layout), f.sha256 or None, f.bytes, rows.get(f, 0),
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
        would count as older than the load of another file. Bad rows count only in a load without
        good ones.
        """
        start = "cast(null as string)" if begins else "concat(cast(_load_date as string), '|0')"
        if rows is not None and (begins or undated):  # it reads the files a second time
            least = {"_sequence": "min", "_bad_sequence": "min", "_load_date": "max"}
            by_file = rows.groupBy("_file_path").agg(least).selectExpr(
                "_file_path", "`min(_sequence)` as _least", "`min(_bad_sequence)` as _least_bad",
                "`max(_load_date)` as _day",
            )  # fmt: skip
            listed = (
                listed.join(by_file, "_file_path", "left")
                .selectExpr("*", "coalesce(_load_date, _day) as _settled_date")
                .drop("_load_date")
                .withColumnRenamed("_settled_date", "_load_date")
            )
            if begins:
                load = "over (partition by _load, _load_date)"
                start = f"coalesce(min(_least) {load}, min(_least_bad) {load})"
        return listed.selectExpr("*", f"if(_load = 'full', {start}, null) as _sequence")

    # -- replay of quarantined rows --------------------------------------------------------------

    def replay(self, table: DataFrame) -> DataFrame:
        """Return the bad rows that are valid by the current entry, to be appended to the log."""
        bad = open_bad_rows(table)
        waiting = [row[0] for row in bad.selectExpr("_file_path").distinct().collect()]
        groups = self._replay_groups(waiting)
        if not groups:
            return self.nothing()
        texts = bad.selectExpr(
            "_file_path as _path", "_row as _line", "_raw as _text", *self._of_messages(table)
        )
        if self.entry.topic:
            groups = self._with_columns_of(groups, texts)
        listed = table.where("_kind = 'file'").selectExpr(
            "_file_path as _path", "_file_path", "_load_date", "_load"
        )
        columns, groups = self._map(groups)
        # Also a partition without messages has a range in the log.
        partitions = len({r.partition for name in self.known.files if (r := read_name(name))})
        parts = [
            log.rows(
                self._with_keys(
                    FORMATS[group.layout.format].text_format.parse(
                        texts.where(f"_path in ({', '.join(map(text, group.paths))})"), group
                    ),
                    partitions,
                ),
                listed, self.entry, group.layout, columns, _has_code(group), undated=False,
            ).where("_kind = 'row'")
            for group in groups
        ]  # fmt: skip
        rows = reduce(lambda a, b: a.unionByName(b), parts)
        # A full load begins before its good rows, and would delete its other rows before that.
        starts = table.where("_kind = 'file'").selectExpr("_file_path", "_sequence as _start")
        rows = rows.join(starts, "_file_path", "left")
        rows = rows.selectExpr("*", "greatest(_sequence, _start) as _placed").drop("_sequence")
        rows = rows.withColumnRenamed("_placed", "_sequence")
        return log.stamped(rows, columns, self.entry, self._next_batch(), self.here.run_id)

    def _of_values(self) -> JsonFormat:
        """Return the format of the values of a topic."""
        format_ = FORMATS[self.entry.layouts[0].format]
        assert isinstance(format_, JsonFormat), "the entry of a topic allows no other formats"
        return format_

    def _of_messages(self, table: DataFrame) -> list[str]:
        """Return the columns of messages, for a log that may have read only files so far."""
        columns = messages.COLUMNS if self.entry.topic else {}
        return [
            name if name in table.columns else f"cast(null as {kind}) as {name}"
            for name, kind in columns.items()
        ]

    def _with_columns_of(self, groups: Sequence[Group], texts: DataFrame) -> list[Group]:
        """Return groups with the columns that their bad rows have by the current entry."""
        looks, _ = messages.look(self._of_values().keys(texts, self.entry))
        return [
            replace(
                group,
                columns=_all_columns(
                    [group.columns, *(looks.get(name, EMPTY).columns for name in group.names)]
                ),
            )
            for group in groups
        ]

    def _replay_groups(self, names: Sequence[str]) -> list[Group]:
        found: dict[tuple[FileLayout, tuple[str, ...]], list[str]] = {}
        for name in sorted(names):
            layout = layout_of(name.rpartition("/")[2], self.entry)
            if layout is None:
                self.here.tell(f"{name}: no layout of the entry matches; its rows stay bad")
                continue
            layout = replace(layout, format=FORMATS[layout.format].text_format.name)
            found.setdefault((layout, self.known.columns.get(name, ())), []).append(name)
        return [
            Group(self.entry, layout, tuple(members), columns, tuple(members))
            for (layout, columns), members in found.items()
        ]


def _has_code(group: Group) -> bool:
    own = FORMATS[group.layout.format].own_operations
    return own or group.layout.operation in group.columns


def _load(layout: FileLayout) -> str:
    """Return ``_load`` of a file; rows that are all new count as changes."""
    return "full" if layout.load == "full" else "changes"


def _all_columns(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for columns in lists for c in columns))
