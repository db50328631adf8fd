"""The SQL statements of a comparison. Pure.

Each row has two hashes of 64 bits, each with its own seed. The seeds depend on the compared
snapshots, so nobody can write a row that has the same hashes as another row. Two kinds of rows
would have the same `xxhash64`, and are distinguished here: it skips NULL, so the positions of NULLs
are hashed too; and it reads nested values as a flat list, so each array, map and struct is hashed
separately first, with the entries of a map in a fixed order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from sparkwap.core.sqltext import quote
from sparkwap.diff.model import RowChange
from sparkwap.diff.plan import ComparedColumn, IcebergType

_MASK_BITS = 63
SHOWN_CHARACTERS = 200
# Kind of row -> its condition in `DiffStatements.paired`, and its old and its new row.
_KINDS: Mapping[RowChange, tuple[str, tuple[str | None, str | None]]] = {
    "removed": ("n < 0 and not pair", ("a", None)),
    "added": ("n > 0 and not pair", (None, "b")),
    "changed": ("pair", ("a", "b")),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one of the two states.

    Attributes:
        relation: The text for the from clause.
        sign: 1 for rows of the new state, -1 for rows of the old state; the opposite for deleted
            rows.
        old: Whether its columns have the names of the old state.
        condition: The condition of the rows; None for all.
        branch: The audit branch that the session must have to read the rows; None if it does not
            matter, empty for no branch.
        rows: An upper bound of the number of rows; None if not known.
    """

    relation: str
    sign: int
    old: bool
    condition: str | None = None
    branch: str | None = None
    rows: int | None = None


def seeds_of(*ids: object) -> tuple[int, int]:
    """Return two seeds for a comparison; the same states have the same seeds and samples.

    The ids of the states are random: Iceberg made them at their commits.
    """
    digest = hashlib.sha256(repr(ids).encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 8]) >> 2 for at in (0, 8))
    return first, second


class DiffStatements:
    """The statements that compare the rows of some sources.

    Args:
        key: The names of the key columns in the new state.
        seeds: See `seeds_of`.
    """

    def __init__(
        self, columns: Sequence[ComparedColumn], key: Sequence[str], seeds: tuple[int, int]
    ) -> None:
        self._columns = columns
        self._seeds = seeds
        self._key = [f"c{i}" for name in key for i, c in enumerate(columns) if c.name == name]

    def signs(self, sources: Sequence[Source]) -> str:
        """Return a query for the hashes of rows that differ; ``n`` is the sum of their signs."""
        one, two = (self._hash(seed) for seed in self._seeds)
        selects = (f"select {one} as h1, {two} as h2, sign from ({s})" for s in self._rows(sources))
        return (
            f"select h1, h2, sum(sign) as n from ({' union all '.join(selects)}) "
            "group by h1, h2 having sum(sign) <> 0"
        )

    def rows(self, sources: Sequence[Source]) -> str:
        """Return a query as `signs`, with the values of each row as ``r``.

        It scans once, and shuffles all values.
        """
        one, two = (self._hash(seed) for seed in self._seeds)
        selects = (
            f"select {one} as h1, {two} as h2, sign as n, {self._struct('')} as r from ({s})"
            for s in self._rows(sources)
        )
        return self.merged(f"({select})" for select in selects)

    @staticmethod
    def merged(relations: Iterable[str]) -> str:
        """Return a query for the sum of several results of `rows`."""
        union = " union all ".join(f"select * from {relation}" for relation in relations)
        return (
            f"select h1, h2, sum(n) as n, any_value(r) as r from ({union}) "
            "group by h1, h2 having sum(n) <> 0"
        )

    def rows_of(self, sources: Sequence[Source], signs: str, *, few: bool) -> str:
        """Return a query as `rows`, only for these hashes: a second scan, with a small shuffle.

        Args:
            signs: The result of `signs`: a view, or a query in parentheses.
            few: Whether the hashes fit into the memory of each worker.
        """
        one, two = (self._hash(seed) for seed in self._seeds)
        columns = ", ".join(self._names)
        union = " union all ".join(
            f"select {one} as h1, {two} as h2, sign, {columns} from ({s})"
            for s in self._rows(sources)
        )
        # Without the hint, Spark would shuffle all rows before it knows the number of hashes.
        hint = "/*+ broadcast(s) */ " if few else ""
        return (
            f"select {hint}s.h1, s.h2, any_value(s.n) as n, any_value({self._struct('t.')}) as r "
            f"from ({union}) as t join {signs} as s "
            "on s.h1 = t.h1 and s.h2 = t.h2 and (s.n > 0) = (t.sign > 0) group by s.h1, s.h2"
        )

    @staticmethod
    def some(signs: str, limit: int) -> str:
        """Return a query for some of these hashes, enough for samples."""
        picked = (
            f"(select h1, h2, n from {signs} where n {comparison} 0 order by h1, h2 limit {limit})"
            for comparison in ("<", ">")
        )
        return f"({' union all '.join(picked)})"

    def paired(self, rows: str) -> str:
        """Return a query for removed rows as ``a`` and added rows as ``b``.

        A removed and an added row with the same key are one row, a ``pair``. Rows whose key occurs
        several times are marked ``twice``.
        """
        if not self._key:
            sides = "if(n < 0, r, null) as a, if(n > 0, r, null) as b"
            return f"select h1, h2, n, {sides}, false as pair, false as twice from {rows}"
        key = ", ".join(f"r.{name}" for name in self._key)
        # The same order in all windows, so that Spark sorts once; removed rows come first.
        ordered = f"partition by {key} order by n"
        whole = f"({ordered} rows between unbounded preceding and unbounded following)"
        return (
            "select h1, h2, n, if(n < 0, r, null) as a, "
            "case when n > 0 then r when pair then partner end as b, pair, twice from "
            "(select *, came = 1 and gone = 1 as pair, came > 1 or gone > 1 as twice from "
            f"(select *, sum(greatest(n, 0L)) over {whole} as came, "
            f"sum(greatest(-n, 0L)) over {whole} as gone, lead(r) over ({ordered}) as partner "
            f"from {rows})) where not (pair and n > 0)"
        )

    def counts(self, view: str) -> str:
        """Return a query over `paired`, with a key.

        Its columns: numbers of added, removed and changed rows; whether keys are not unique; and
        for each column, the number of changed rows in which it differs.
        """
        differ = (f"count_if(pair and {self._differs(i)})" for i in range(len(self._columns)))
        return (
            "select coalesce(sum(if(pair, 0L, greatest(n, 0L))), 0L), "
            "coalesce(sum(if(pair, 0L, greatest(-n, 0L))), 0L), count_if(pair), "
            f"coalesce(bool_or(twice), false), {', '.join(differ)} from {view}"
        )

    @staticmethod
    def sums(signs: str) -> str:
        """Return a query for the numbers of added and removed rows, duplicates counted.

        ``signs`` is the result of `signs`, or of `paired` without a key.
        """
        return (
            "select coalesce(sum(greatest(n, 0L)), 0L), coalesce(sum(greatest(-n, 0L)), 0L) "
            f"from {signs}"
        )

    def samples(
        self, view: str, limit: int, shown: Sequence[int], kinds: Collection[RowChange]
    ) -> str:
        """Return a query for some rows.

        Its columns: the change, the number of equal rows, the old and the new values as text, and
        for each column whether it differs.

        Args:
            view: The result of `paired`.
            limit: Greatest number of rows of each kind.
            shown: The columns to show; the values of others are not read.
            kinds: The kinds of rows that exist; each kind is a Spark job of its own.
        """
        parts = (self._sample(kind, view, *_KINDS[kind], shown) for kind in _KINDS if kind in kinds)
        return " union all ".join(f"({part} limit {limit})" for part in parts)

    def _sample(
        self,
        change: RowChange,
        view: str,
        condition: str,
        rows: tuple[str | None, str | None],
        shown: Sequence[int],
    ) -> str:
        changed = change == "changed"
        texts = [self._text(row, i) for row in rows for i in shown]
        flags = [self._differs(i) if changed else "false" for i in range(len(self._columns))]
        # The hashes differ in each comparison, so they only order rows with equal texts.
        row = rows[1] or rows[0]
        order = [f"{row}.{name}" for name in self._key] or [self._text(row, i) for i in shown]
        order += [] if changed else ["h1", "h2"]
        count = "1L" if changed else "abs(n)"
        listed = ", ".join([f"'{change}'", count, *texts, *flags])
        return f"select {listed} from {view} where {condition} order by {', '.join(order)}"

    @property
    def _names(self) -> list[str]:
        return [f"c{i}" for i in range(len(self._columns))]

    def _struct(self, prefix: str) -> str:
        fields = ", ".join(f"'{name}', {prefix}{name}" for name in self._names)
        return f"named_struct({fields})"

    def _rows(self, sources: Sequence[Source]) -> Iterator[str]:
        for source in sources:
            named = (c.before if source.old else c.name for c in self._columns)
            columns = [
                f"{_cast(quote(name), c)} as c{i}"
                for i, (name, c) in enumerate(zip(named, self._columns, strict=True))
            ]
            where = "" if source.condition is None else f" where {source.condition}"
            yield (
                f"select {', '.join([*columns, f'{source.sign}L as sign'])} "
                f"from {source.relation}{where}"
            )

    def _hash(self, seed: int) -> str:
        nullable = [f"c{i}" for i, c in enumerate(self._columns) if c.nullable]
        masks = (
            " | ".join(f"if({name} is null, {1 << bit}L, 0L)" for bit, name in enumerate(part))
            for part in (
                nullable[at : at + _MASK_BITS] for at in range(0, len(nullable), _MASK_BITS)
            )
        )
        values = [value_sql(f"c{i}", c.type, seed) for i, c in enumerate(self._columns)]
        return f"xxhash64({', '.join([f'{seed}L', *masks, *values])})"

    def _differs(self, index: int) -> str:
        kind = self._columns[index].type
        old, new = (value_sql(f"{side}.c{index}", kind, self._seeds[0]) for side in ("a", "b"))
        return f"not ({old} <=> {new})"

    def _text(self, row: str | None, index: int) -> str:
        if row is None:
            return "cast(null as string)"
        return text_sql(f"{row}.c{index}", self._columns[index].type)


def _cast(value: str, column: ComparedColumn) -> str:
    """Return SQL for a value in the type of its comparison."""
    if column.cast is None:
        return value
    text = f"cast({value} as {column.cast})"
    if not column.whole:
        return text
    # In this range, a double that is whole is a bigint, exactly.
    integer, limit = f"try_cast({value} as bigint)", f"{1 << 63}D"
    is_whole = f"{value} >= -{limit} and {value} < {limit} and {integer} = {value}"
    return f"if({is_whole}, cast({integer} as {column.cast}), {text})"


def text_sql(value: str, kind: IcebergType) -> str:
    """Return SQL for a value as text; a long text is cut."""
    text = f"cast({value} as string)"
    if not isinstance(kind, str):
        text = f"to_json({value})"
    elif kind == "binary" or kind.startswith("fixed"):
        text = f"hex({value})"
    return f"left({text}, {SHOWN_CHARACTERS})"


def value_sql(value: str, kind: IcebergType, seed: int) -> str:
    """Return SQL for the comparison of a value: the value, or the hash of a nested value."""
    if isinstance(kind, str):
        return value
    return f"if({value} is null, null, {_nested(value, kind, seed, count(1))})"


def _nested(value: str, kind: Mapping[str, Any], seed: int, names: Iterator[int]) -> str:
    nested = kind["type"]
    if nested == "struct":
        fields = (
            _single(f"{value}.{quote(f['name'])}", f["type"], seed, names) for f in kind["fields"]
        )
        return f"xxhash64({', '.join([f'{seed}L', *fields])})"
    name = f"e{next(names)}"
    if nested == "list":
        inner = _single(name, kind["element"], seed, names)
        return f"xxhash64({seed}L, size({value}), transform({value}, {name} -> {inner}))"
    key = _single(f"{name}.key", kind["key"], seed, names)
    inner = _single(f"{name}.value", kind["value"], seed, names)
    entries = f"transform(map_entries({value}), {name} -> xxhash64({seed}L, {key}, {inner}))"
    return f"xxhash64({seed}L, size({value}), array_sort({entries}))"


def _single(value: str, kind: IcebergType, seed: int, names: Iterator[int]) -> str:
    """Return SQL for the hash of one value; NULL has the hash of no value."""
    if isinstance(kind, str):
        return f"xxhash64({seed}L, {value})"
    return f"if({value} is null, xxhash64({seed}L), {_nested(value, kind, seed, names)})"


def null_counts(relation: str, columns: Sequence[str]) -> str:
    """Return a query for the number of rows, and of non-null values of each column."""
    counts = ["count(*)", *(f"count({quote(name)})" for name in columns)]
    return f"select {', '.join(counts)} from {relation}"
