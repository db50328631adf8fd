"""Selects the values of a column that can be the subject's, before Python looks at each of them.

PyArrow looks at millions of values in the time in which Python looks at thousands. What it selects
is never too little: a value that is left out is neither one of the texts, nor has it a token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sparkwap.erasure.search import NO_TOKEN, NOT_SIMPLE, text_of, tokens_of

_LONGEST_PATTERN = 4000
"""Characters of an expression of which RE2 does not need more memory than PyArrow allows it."""


def candidates(
    column: pa.Array, texts: Collection[str], tokens: Collection[str] | None = ()
) -> list[Any]:
    """Return the distinct values of a column that can be one of the texts, or have a token.

    Args:
        column: A column; values of one with nested values have no text.
        texts: What `search.text_of` returns of the wanted values.
        tokens: See `search.Search.tokens`; only columns of text are searched for them.

    Raises:
        pa.ArrowInvalid: The column is damaged, or its text is not UTF-8.
    """
    column = plain(column)
    if pa.types.is_nested(column.type):
        return []
    chosen = _chosen(column, texts, tokens)
    return _distinct(column if chosen is None else column.filter(chosen))


def equal(column: pa.Array, texts: Collection[str]) -> pa.BooleanArray:
    """Return for each value of a column whether its text is one of the texts."""
    return matching(column, texts, (), lambda value: text_of(value) in texts)


def matching(
    column: pa.Array,
    texts: Collection[str],
    tokens: Collection[str] | None,
    holds: Callable[[Any], bool],
) -> pa.BooleanArray:
    """Return for each value of a column whether it is one of the `candidates` and holds."""
    column = plain(column)
    if pa.types.is_nested(column.type):
        return pa.repeat(pa.scalar(False), len(column))
    chosen = _chosen(column, texts, tokens)
    if chosen is None:
        values = column.to_pylist()
        return pa.array([one is not None and holds(one) for one in values], pa.bool_())
    found = [value for value in _distinct(column.filter(chosen)) if holds(value)]
    return _is_in(column, pa.array(found, column.type))


def filtered(column: pa.Array, rows: pa.BooleanArray) -> pa.Array:
    """Return the values of some rows."""
    try:
        return column.filter(rows)
    except pa.ArrowNotImplementedError:  # views in a nested column
        values = zip(column.to_pylist(), rows.to_pylist(), strict=True)
        return pa.array([value for value, keep in values if keep])


def filled(column: pa.Array) -> pa.BooleanArray:
    """Return for each value of a column whether it is neither null nor an empty text."""
    column = plain(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.not_equal(pc.utf8_trim_whitespace(column), "").fill_null(False)
    return column.is_valid()


def _chosen(
    column: pa.Array, texts: Collection[str], tokens: Collection[str] | None
) -> pa.BooleanArray | None:
    """Return which values of a plain column can match; None if Arrow cannot tell that."""
    column.validate(full=True)
    texts = frozenset(texts)
    if is_text(column.type):
        also = tokens_of(texts)
        return None if tokens is None or also is None else _have(column, {*tokens, *also})
    wanted = _typed(column.type, texts)
    return None if wanted is None else _is_in(column, wanted)


def _distinct(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ExtensionArray):
        return list(set(column.drop_null().to_pylist()))
    found: list[Any] = pc.unique(column).drop_null().to_pylist()
    return found


def plain(column: pa.Array) -> pa.Array:
    """Return a column without dictionary, run lengths and views, which are a writer's choice."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if isinstance(column, pa.ExtensionArray) and not isinstance(kind, pa.UuidType):
        return plain(column.storage)
    return column


def _is_in(column: pa.Array, values: pa.Array) -> pa.BooleanArray:
    if isinstance(column, pa.ExtensionArray):
        column, values = column.storage, values.storage
    return pc.is_in(column, values)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a plain column has texts or bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _have(column: pa.Array, tokens: Collection[str]) -> pa.BooleanArray | None:
    """Return which texts have a token or are not simple; None for bytes that are no text."""
    try:
        column = column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None
    pattern = NOT_SIMPLE
    many = sum(map(len, tokens)) > _LONGEST_PATTERN
    if tokens and not many:
        pattern += f"|(?i:(?:^|{NO_TOKEN})(?:{'|'.join(sorted(tokens))})(?:$|{NO_TOKEN}))"
    chosen = pc.match_substring_regex(column, pattern)
    if not many:
        return chosen
    parts = pc.split_pattern_regex(pc.utf8_lower(column.fill_null("")), f"{NO_TOKEN}+")
    wanted = pa.array(sorted(tokens), pa.large_string())
    rows = pc.list_parent_indices(parts).filter(pc.is_in(pc.list_flatten(parts), wanted))
    return pc.or_(chosen, pc.is_in(pa.array(range(len(column)), rows.type), rows))


@lru_cache(32)
def _typed(kind: pa.DataType, texts: frozenset[str]) -> pa.Array | None:
    """Return the values of a type that have one of the texts; None if that is not known."""
    parse = Decimal if pa.types.is_decimal128(kind) else _PARSERS.get(kind)
    if parse is None:
        return None
    found = []
    for text in texts:
        try:
            value = parse(text)
            if text_of(value) == text:
                found.append(pa.scalar(value, kind))
        except (ValueError, ArithmeticError):
            continue  # The type has no such value.
    return pa.array(found, kind)


_PARSERS: Mapping[pa.DataType, Callable[[str], Any]] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), int),
    **dict.fromkeys((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), int),
    pa.float64(): float,
    pa.uuid(): UUID,
    pa.date32(): date.fromisoformat,
    pa.timestamp("us"): lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
    pa.timestamp("us", "UTC"): lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}
