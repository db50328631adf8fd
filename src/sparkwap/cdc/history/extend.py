"""Bring a history up to its log, at a cost that follows the change.

Of the log's batches that are new, each key takes one of three paths:

- follow: the events come after all that was seen of the key; its current version and they are
  enough
- unknown: the table has no current version of the key; if the log has nothing older of it, the
  events are enough
- late: anything else, such as a late event or a key that was deleted; its history is built again
  from the log

Only rows that came out different are written. The log beyond the new batches is read only if there
are keys without a current version (their keys alone) or late ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sparkwap.cdc.history import steps
from sparkwap.cdc.history.marks import HistoryMarks, Met, Run, met
from sparkwap.cdc.history.settings import MADE, HistorySettings
from sparkwap.cdc.history.steps import same
from sparkwap.cdc.history.versions import versions, with_
from sparkwap.cdc.resets import IS_EVENT, IS_RESET
from sparkwap.cdc.sql import at_grain, quote
from sparkwap.core.sqltext import literal

_SKIPS_FILES = ("string", "int", "bigint", "date", "decimal")
_SOURCE, _TARGET = "DBT_INTERNAL_SOURCE", "DBT_INTERNAL_DEST"


class Keys(NamedTuple):
    """How many keys there are, and the bounds of the first key column, to skip files by."""

    number: int = 0
    least: str | None = None
    greatest: str | None = None


_NO_KEYS = Keys()


@dataclass(frozen=True)
class Increment:
    """What is new in the log.

    Attributes:
        events: The number of rows.
        batch: The last batch.
        met: Whether it has resets, and events that leave columns out.
        everything: Whether all keys have to be built again, as a reset is late.
        late: The keys whose history is built again from the log.
    """

    events: int
    batch: int
    met: Met
    everything: bool
    late: Keys = _NO_KEYS


class Extension:
    """One run that extends a history.

    Args:
        history: The settings, with the columns that the table has.
        table: The history's table.
        marks: How far it is.
        stage: What the names of the run's temporary tables begin with.
        restate: SQL: keys to build again; None for none.
        run: Sends a statement.
    """

    def __init__(
        self,
        history: HistorySettings,
        table: str,
        marks: HistoryMarks,
        stage: str,
        restate: str | None,
        run: Run,
    ) -> None:
        self._history, self._table, self._marks = history, table, marks
        self._stage, self._restate, self._run = stage, restate, run

    def merge_sql(self) -> str | None:
        """The statement that writes the changes, which are staged before; None without changes."""
        new = f"select * from ({self._history.sql}) where _batch > {self._marks.batch}"
        self._cache("increment", new)
        increment = self._look()
        if not (increment.events or increment.everything or self._restate):
            return None
        if not increment.everything:
            increment = replace(increment, late=self._stage_late_keys(increment))
        self._cache("changes", self._changes(increment))
        if not self._run(f"select count(*) from {self._stage}changes")[0]:
            return None
        return self._merge(increment)

    def drop(self) -> None:
        """Drop the temporary tables."""
        for name in ("changes", "late", "keys", "increment"):
            self._run(f"drop view if exists {self._stage}{name}")

    def _cache(self, name: str, sql: str) -> None:
        """A step's rows under a name, kept in the session: they are read more than once.

        The first query, which follows at once and counts them, makes them: an eager cache would
        count on its own.
        """
        self._run(f"cache lazy table {self._stage}{name} as\n{sql}")

    # -- what is new -----------------------------------------------------------------------------

    def _look(self) -> Increment:
        partial = "count(_absent)" if self._history.partial else "0"
        events, batch, first_reset, absent = self._run(
            f"select count(*), max(_batch), min(if({IS_RESET}, _sequence, null)), {partial} "
            f"from {self._stage}increment"
        )
        resets = first_reset is not None
        return Increment(
            events=events,
            batch=self._marks.batch if batch is None else int(batch),
            met=Met(resets, absent > 0),
            everything=resets and self._run(self._older(first_reset))[0] > 0,
        )

    def _older(self, first_reset: str) -> str:
        """SQL: whether the log has rows that a reset of the increment is late for."""
        late = f"_sequence >= {literal(first_reset)}"
        if self._history.loads:
            loads = f"select _load_date from {self._stage}increment where _op = 'full_load'"
            late += f" or (_op = 'full_load' and _load_date in ({loads}))"
        return (
            f"select count(*) from (select 1 from ({self._history.sql}) "
            f"where _batch <= {self._marks.batch} and ({late}) limit 1)"
        )

    # -- the path of each key --------------------------------------------------------------------

    def _stage_late_keys(self, increment: Increment) -> Keys:
        """Stage the keys of the increment with their path, and the late ones once more."""
        self._cache("keys", self._paths(increment.met))
        late, unknown = self._ranges("keys", "late", "unknown")
        logged = unknown.number > 0 and self._marks.batch >= 0
        if not (late.number or logged or self._restate):
            return late
        self._cache("late", self._late_keys(unknown if logged else None))
        return self._ranges("late", "late")[0]

    def _paths(self, found: Met) -> str:
        history = self._history
        first_time = f"min({at_grain('_event_time', history.grain)}) as _first_time"
        is_partial = ", bool_or(_absent is not null) as _is_partial" if history.partial else ""
        parts = {
            "touched": f"""
        select {history.key}, min(_sequence) as _first_sequence, {first_time}{is_partial}
        from {self._stage}increment
        where {IS_EVENT}
        group by {history.key}""",
            "heads": f"""
        select {history.key}, valid_from, change_flag, _sequence, _event_time
        from {self._table}
        where is_current""",
        }
        keys = [f"touched.{quote(c)}" for c in history.keys]
        join, resets = "left", ""
        if found.resets:
            source = history.resets(f"select * from {self._stage}increment")
            parts["resets"] = f"""
        select
            resets[0].at._sequence as _sequence,
            array_min(transform(resets, one -> one.time)) as _time
        from ({source})"""
            keys = [f"coalesce(touched.{c}, heads.{c}) as {c}" for c in map(quote, history.keys)]
            join, resets = "full outer", "cross join resets"
        return f"""{with_(parts)}
        select
            {", ".join(keys)},
            case
                when heads.valid_from is null then 'unknown'
                when {self._follows(found)} then 'follow'
                else 'late'
            end as _path
        from touched
        {join} join heads on {same("touched", "heads", history.keys)}
        {resets}"""

    def _follows(self, found: Met) -> str:
        """SQL: whether all events of a key come after what was seen of it.

        One that is not later than the start of the current version may undo that version, so that
        the one before it goes on.
        """
        history = self._history
        sequence, time = "touched._first_sequence", "touched._first_time"
        if found.resets:
            sequence = f"least({sequence}, resets._sequence)"
            time = f"least({time}, resets._time)"
        rules = [
            f"{sequence} > heads._sequence",
            f"greatest({time}, heads._event_time) > heads.valid_from",
        ]
        is_partial = "coalesce(touched._is_partial, false)"
        if history.partial and [*history.tracked] != [*history.payload]:
            # The current version has the other columns as they were when it began.
            rules.append(f"not {is_partial}")
        elif history.partial:
            rules.append(f"not ({is_partial} and heads.change_flag = 'D')")
        return " and ".join(rules)

    def _late_keys(self, unknown: Keys | None) -> str:
        """SQL of the late keys: by their path, by older events in the log, or restated."""
        history = self._history
        parts = [f"select {history.key} from {self._stage}keys where _path = 'late'"]
        if unknown is not None:
            parts.append(
                f"select {history.key} from ({history.sql}) as logged "
                f"left semi join {self._stage}keys as known "
                f"on {same('logged', 'known', history.keys)} and known._path = 'unknown' "
                f"where logged._batch <= {self._marks.batch} and {self._within('logged', unknown)}"
            )
        if self._restate:
            parts += [
                f"select {history.key} from ({history.sql}) where {IS_EVENT} and ({self._restate})",
                f"select {history.key} from {self._table} where {self._restate}",
            ]
        return "\nunion\n".join(parts)

    def _ranges(self, keys: str, *paths: str) -> list[Keys]:
        """Of each path its keys; a single path is all that there is."""
        first, columns = quote(self._history.keys[0]), list[str]()
        for path in paths:
            of = f" filter (where _path = {literal(path)})" if len(paths) > 1 else ""
            bounds = (f"cast({end}({first}){of} as string)" for end in ("min", "max"))
            columns += [f"count(*){of}", *bounds]
        found = self._run(f"select {', '.join(columns)} from {self._stage}{keys}")
        return [Keys(*found[at : at + 3]) for at in range(0, len(found), 3)]

    def _within(self, table: str, keys: Keys) -> str:
        first = self._history.keys[0]
        kind = self._history.types[first]
        if kind.split("(")[0] not in _SKIPS_FILES:
            return "true"
        least, greatest = (
            f"cast({literal(str(end))} as {kind})" for end in (keys.least, keys.greatest)
        )
        return f"{table}.{quote(first)} between {least} and {greatest}"

    # -- the changes -----------------------------------------------------------------------------

    def _changes(self, increment: Increment) -> str:
        """SQL of what has to change in the table: each row with an ``_action``."""
        history = self._history
        match = [quote(c) for c in (*history.keys, "valid_from")]
        own = [quote(c) for c in (*history.payload, *MADE, "_sequence", "_event_time")
               if c != "valid_from"]  # fmt: skip
        columns = [f"coalesce(wanted.{c}, present.{c}) as {c}" for c in match]
        columns += [f"wanted.{c}" for c in own]
        numbered = ""
        if history.surrogate_key:
            number = quote(history.surrogate_key)
            columns.append(f"present.{number} as _number")
            numbered = f"""
            cast(coalesce(_number, {self._marks.number} + row_number() over (
                partition by _action order by valid_from, {history.key}
            )) as bigint) as {number},"""
        differs = [f"not (wanted.{c} <=> present.{c})" for c in own]
        different = " or ".join(
            ["wanted.valid_from is null", "present.valid_from is null", *differs]
        )
        compared = f"""
        select
            {", ".join(columns)},
            case
                when present.valid_from is null then 'insert'
                when wanted.valid_from is null then 'delete'
                else 'update'
            end as _action
        from wanted
        full outer join present on {same("wanted", "present", [*history.keys, "valid_from"])}
        where {different}"""
        parts = {
            "wanted": self._wanted(increment),
            "present": self._present(increment),
            "compared": compared,
        }
        return f"""{with_(parts)}
        select *,{numbered} cast({increment.batch} as bigint) as _batch
        from compared"""

    def _wanted(self, increment: Increment) -> str:
        """SQL of the versions that the touched keys should have."""
        history, late = self._history, increment.late.number > 0
        logged = late or increment.everything
        found = met(history, self._run) if logged else increment.met
        history = replace(history, partial=found.partial)
        if increment.everything:
            parts = [steps.events(history, history.sql)]
        else:
            parts = [steps.heads(history, self._heads(late)),
                     steps.events(history, self._events(late))]  # fmt: skip
        if late:
            parts.append(steps.events(history, self._late_rows(increment.late, history.sql)))
        # Old resets meet late keys only: what follows on a current version comes after them.
        source = history.sql if logged else f"select * from {self._stage}increment"
        resets = history.resets(source) if found.resets else None
        return versions(history, "\nunion all\n".join(parts), resets)

    def _present(self, increment: Increment) -> str:
        """SQL of the rows that the table has of the touched keys."""
        everything = f"select * from {self._table}"
        if increment.everything:
            return everything
        if not increment.late.number:
            return self._heads(late=False)
        rows = self._late_rows(increment.late, everything)
        return f"{self._heads(late=True)}\nunion all\n{rows}"

    def _heads(self, late: bool) -> str:
        """SQL of the current versions of keys that go on from them."""
        on = same("head", "known", self._history.keys)
        return (
            f"select head.* from {self._table} as head "
            f"left semi join {self._stage}keys as known on {on} and known._path = 'follow'"
            f"{self._but_late('head') if late else ''} where head.is_current"
        )

    def _events(self, late: bool) -> str:
        """SQL of the new events of keys that are not late."""
        but_late = self._but_late("event") if late else ""
        return f"select event.* from {self._stage}increment as event{but_late}"

    def _but_late(self, table: str) -> str:
        on = same(table, "late", self._history.keys)
        return f" left anti join {self._stage}late as late on {on}"

    def _late_rows(self, late: Keys, source: str) -> str:
        """SQL of the rows of late keys."""
        return (
            f"select known.* from ({source}) as known left semi join {self._stage}late as late "
            f"on {same('known', 'late', self._history.keys)} where {self._within('known', late)}"
        )

    def _merge(self, increment: Increment) -> str:
        columns = [quote(c) for c in self._history.columns]
        on = same(_TARGET, _SOURCE, [*self._history.keys, "valid_from"])
        if not increment.everything:
            # What follows on current versions leaves the closed ones, and their files, alone.
            within = ""
            if increment.late.number:
                within = f" or ({self._within(_TARGET, increment.late)})"
            on += f" and ({_TARGET}.is_current{within})"
        return f"""
        merge into {self._table} as {_TARGET}
        using {self._stage}changes as {_SOURCE}
        on {on}
        when matched and {_SOURCE}._action = 'delete' then delete
        when matched then update set {", ".join(f"{c} = {_SOURCE}.{c}" for c in columns)}
        when not matched then insert ({", ".join(columns)})
            values ({", ".join(f"{_SOURCE}.{c}" for c in columns)})"""
