"""Extends a history by the new batches of its log, at a cost proportional to the change.

Each key of the new batches takes one of three paths:

- follow: all events are later than the key's known events; the new versions need only the current
  version and the events
- unknown: the table has no current version of the key; if the log has no older events of the key,
  and no reset at or after its first event, the new versions need only the events
- late: all other cases, such as a late event or a deleted key; the key's history is built again
  from the log

Only rows that differ are written. Older batches of the log are read only for late keys, and for
keys without a current version (only their key columns).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sparkwap.cdc.event_sql import at_grain, quote
from sparkwap.cdc.history import steps
from sparkwap.cdc.history.marks import HistoryMarks, Met, Run, met
from sparkwap.cdc.history.settings import MADE, HistorySettings
from sparkwap.cdc.history.steps import same
from sparkwap.cdc.history.versions import versions, with_
from sparkwap.cdc.resets import IS_EVENT, IS_RESET
from sparkwap.core.sqltext import literal

_SKIPS_FILES = ("string", "int", "bigint", "date", "decimal")
_SOURCE, _TARGET = "DBT_INTERNAL_SOURCE", "DBT_INTERNAL_DEST"


class Keys(NamedTuple):
    """The number of keys, and the bounds of the first key column, which let Spark skip files."""

    number: int = 0
    least: str | None = None
    greatest: str | None = None


_NO_KEYS = Keys()


@dataclass(frozen=True)
class Increment:
    """The new rows of the log.

    Attributes:
        batch: The last batch.
        first: The lowest sequence.
        met: Whether the rows have resets and partial events.
        everything: Whether all keys must be built again, because a reset is late.
        late: The keys whose history is built again from the log.
    """

    events: int
    batch: int
    first: str
    met: Met
    everything: bool
    late: Keys = _NO_KEYS


class Extension:
    """One run that extends a history by its new batches; ``stage`` begins temporary names."""

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
        """Stage the changes, and return the statement that writes them; None without changes."""
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
        """Cache the rows of a step under a name, because they are read more than once.

        The cache is lazy: the next query counts the rows and fills it. An eager cache would run a
        count of its own.
        """
        self._run(f"cache lazy table {self._stage}{name} as\n{sql}")

    # -- what is new -----------------------------------------------------------------------------

    def _look(self) -> Increment:
        partial = "count(_absent)" if self._history.partial else "0"
        events, batch, first, first_reset, absent = self._run(
            "select count(*), max(_batch), min(_sequence), "
            f"min(if({IS_RESET}, _sequence, null)), {partial} from {self._stage}increment"
        )
        resets = first_reset is not None
        return Increment(
            events=events,
            batch=self._marks.batch if batch is None else int(batch),
            first=first or "",
            met=Met(resets, absent > 0),
            everything=resets and self._run(self._older(first_reset))[0] > 0,
        )

    def _older(self, first_reset: str) -> str:
        """Return SQL for whether a reset of the increment is older than known rows of the log."""
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
        """Stage the keys of the increment with their path, and the late keys separately."""
        self._cache("keys", self._paths(increment.met))
        late, unknown = self._ranges("keys", "late", "unknown")
        logged = unknown.number > 0 and self._marks.batch >= 0
        if not (late.number or logged or self._restate):
            return late
        self._cache("late", self._late_keys(unknown if logged else None, increment.first))
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
            touched._first_sequence,
            case
                when heads.valid_from is null then 'unknown'
                when {self._follows(found)} then 'follow'
                else 'late'
            end as _path
        from touched
        {join} join heads on {same("touched", "heads", history.keys)}
        {resets}"""

    def _follows(self, found: Met) -> str:
        """Return SQL for whether all events of a key are later than its known events.

        An event that is not later than the start of the current version may undo that version, so
        that the version before it becomes current again.
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
            # The untracked columns of the current version may be outdated.
            rules.append(f"not {is_partial}")
        if history.deletes == "record":
            # The log may have a reset after the deletion, which recorded nothing.
            deleted = "heads.change_flag = 'D'"
            rules.append(f"not ({deleted} and touched._first_sequence is not null)")
        return " and ".join(rules)

    def _late_keys(self, unknown: Keys | None, first: str) -> str:
        """Return SQL of the late keys: by their path, by older events in the log, or restated."""
        history = self._history
        seen = f"from ({history.sql}) as logged"
        older = f"where logged._batch <= {self._marks.batch}"
        parts = [f"select {history.key} from {self._stage}keys where _path = 'late'"]
        if unknown is not None:
            parts += [
                f"select {history.key} {seen} left semi join {self._stage}keys as known "
                f"on {same('logged', 'known', history.keys)} and known._path = 'unknown' "
                f"{older} and {self._within('logged', unknown)}",
                f"select {history.key} from {self._stage}keys where _path = 'unknown' "
                f"and _first_sequence <= (select max(_sequence) {seen} {older} and {IS_RESET} "
                # Spark skips files by it.
                f"and _sequence >= {literal(first)})",
            ]
        if self._restate:
            parts += [
                f"select {history.key} from ({history.sql}) where {IS_EVENT} and ({self._restate})",
                f"select {history.key} from {self._table} where {self._restate}",
            ]
        return "\nunion\n".join(parts)

    def _ranges(self, keys: str, *paths: str) -> list[Keys]:
        """Return the keys of each path; with a single path, all keys."""
        first, columns = quote(self._history.keys[0]), list[str]()
        for path in paths:
            where = f" filter (where _path = {literal(path)})" if len(paths) > 1 else ""
            bounds = (f"cast({end}({first}){where} as string)" for end in ("min", "max"))
            columns += [f"count(*){where}", *bounds]
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
        """Return SQL of the rows to change in the table, each with an ``_action``."""
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
        """Return SQL of the versions that the changed keys should have."""
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
        # Old resets change late keys only: other keys have no event before them.
        source = history.sql if logged else f"select * from {self._stage}increment"
        resets = history.resets(source) if found.resets else None
        return versions(history, "\nunion all\n".join(parts), resets)

    def _present(self, increment: Increment) -> str:
        """Return SQL of the table's present rows of the changed keys."""
        everything = f"select * from {self._table}"
        if increment.everything:
            return everything
        if not increment.late.number:
            return self._heads(late=False)
        rows = self._late_rows(increment.late, everything)
        return f"{self._heads(late=True)}\nunion all\n{rows}"

    def _heads(self, late: bool) -> str:
        """Return SQL of the current versions of keys on the path ``follow``."""
        on = same("head", "known", self._history.keys)
        return (
            f"select head.* from {self._table} as head "
            f"left semi join {self._stage}keys as known on {on} and known._path = 'follow'"
            f"{self._without_late('head') if late else ''} where head.is_current"
        )

    def _events(self, late: bool) -> str:
        """Return SQL of the new events of keys that are not late."""
        without_late = self._without_late("event") if late else ""
        return f"select event.* from {self._stage}increment as event{without_late}"

    def _without_late(self, table: str) -> str:
        on = same(table, "late", self._history.keys)
        return f" left anti join {self._stage}late as late on {on}"

    def _late_rows(self, late: Keys, source: str) -> str:
        """Return SQL of the rows of late keys."""
        return (
            f"select known.* from ({source}) as known left semi join {self._stage}late as late "
            f"on {same('known', 'late', self._history.keys)} where {self._within('known', late)}"
        )

    def _merge(self, increment: Increment) -> str:
        columns = [quote(c) for c in self._history.columns]
        on = same(_TARGET, _SOURCE, [*self._history.keys, "valid_from"])
        if not increment.everything:
            # Keys on the path `follow` change current versions only, so files with only closed
            # versions are skipped.
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
