"""SQL expressions of the log: order, time, operation and faults of a row.

Their inputs are the text columns of a format's frame: ``_own`` (struct of the entity's own
columns), ``_code`` (operation code), ``_order`` (array of the sequence columns) and ``_time``
(event time).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from sparkwap.core import sqltext
from sparkwap.core.spark_types import decimal_digits, normal, wider
from sparkwap.landing.entry import Entry, FileLayout

MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_LONG_DIGITS = 19
TOMBSTONE = "null"
"""The text of a message without a value."""
_CAST = re.compile(r"(?i)cast\((`[^`]+`|[a-z_]\w*) as (\w+(?:\(\d+(?:, ?\d+)?\))?)\)")
# Python has no times outside of the years 1 to 9999, so readers without Spark could not read them.
_YEARS = "between 1 and 9999"
_MILLIS = (
    "timestamp_millis(if(try_cast({0} as bigint) between -62135596800000 and 253402300799999, "
    "try_cast({0} as bigint), null))"
)
# Spark also casts a number, as a year, and a time without a day, as of today.
_DAY = sqltext.literal(r"^\s*\d{4}-\d\d?-\d\d?")


quote = sqltext.quote
text = sqltext.literal


def has_controls(value: str) -> bool:
    """Return whether a name has line ends, control characters or surrogates."""
    return any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in value)


def own(column: str) -> str:
    """Return SQL for the text of one of the entity's own columns."""
    return f"_own.{quote(column)}"


# ---------------------------------------------------------------- texts as types


def rounds(value: str, kind: str) -> str | None:
    """Return SQL for whether a cast of a text to a type rounds it; None for types without rounding.

    Spark's ``cast`` and ``try_cast`` to a decimal round values with more places than the type.
    """
    digits = decimal_digits(normal(kind) or "")
    if digits is None:
        return None
    # Spark reads digits of all scripts. Only the ASCII zero is recognised as zero here.
    more = rf"[.]\p{{Nd}}{{{digits[1]}}}\p{{Nd}}*[\p{{Nd}}&&[^0]]"
    written = f"{value} rlike {text(more)}"
    powers = f"try_cast({value} as {kind}) <> try_cast({value} as double)"
    return f"if({value} rlike '[eE]', {powers}, {written})"


def exact(value: str, kind: str) -> str:
    """Return SQL for a text as a type; NULL if the text is invalid or would be rounded.

    A date or time has to be written with its year, month and day.
    """
    lossy = rounds(value, kind)
    cast = f"try_cast({value} as {kind})"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return f"if({value} rlike {_DAY} and year({cast}) {_YEARS}, {cast}, null)"
    return f"if({lossy}, null, {cast})" if lossy else cast


def plain_cast(expression: str) -> tuple[str, str] | None:
    """Return column and type of ``cast(<column> as <type>)``; None for other SQL."""
    found = _CAST.fullmatch(expression.strip())
    return (found[1], found[2]) if found else None


def checked(value: str, kind: str, column: str) -> str:
    """Return SQL for a text as a type; the query fails for invalid text and instead of rounding."""
    lossy = rounds(value, kind)
    if lossy is None:
        return f"cast({value} as {kind})"
    error = text(
        f"Values of column {column} have more decimal places than {kind} keeps, and are not "
        "rounded. Give the column a type with enough places, or double, or string"
    )
    return f"cast(if({lossy}, raise_error({error}), {value}) as {kind})"


# ---------------------------------------------------------------- order and time


def sequence(entry: Entry) -> str:
    """Return SQL for the source's order as sortable text; '' is the lowest value."""
    if not entry.sequence:
        return "concat(cast(_load_date as string), if(_load = 'full', '|0', '|1'))"
    parts = [f"_order[{i}]" for i in range(len(entry.sequence))]
    given = " or ".join(f"{part} is not null" for part in parts)
    sortable = [
        f"coalesce({sortable_text(part, kind)}, {lowest(kind)})"
        for part, (_, kind) in zip(parts, entry.sequence, strict=True)
    ]
    return f"if({given}, concat_ws('|', {', '.join(sortable)}), '')"


def known_sequence(entry: Entry) -> str:
    """Return SQL for the source's order of a row that may be bad; NULL if it is not known."""
    wrong = [
        f"(_order[{i}] is not null and {sortable_text(f'_order[{i}]', kind)} is null)"
        for i, (_, kind) in enumerate(entry.sequence)
    ]
    return f"if({' or '.join(['_broken is not null', *wrong])}, null, {sequence(entry)})"


def sortable_text(value: str, kind: str) -> str:
    """Return SQL for a text of type ``kind`` as sortable text; NULL if the text is invalid."""
    if kind == "timestamp":
        return f"date_format({exact(value, kind)}, {text(MICROSECONDS)})"
    if kind == "date":
        return f"date_format({exact(value, kind)}, 'yyyy-MM-dd')"
    if kind == "string":
        return value
    digits = decimal_digits(kind)
    kind, width = (kind, _width(*digits)) if digits else ("bigint", _LONG_DIGITS)
    number = exact(value, kind)
    # Negative numbers are not supported: a minus sign would break the text order.
    return f"if({number} >= 0, lpad(cast({number} as string), {width}, '0'), null)"


def _width(precision: int, scale: int) -> int:
    return precision + 1 if scale else precision


def lowest(kind: str) -> str:
    """Return SQL for the lowest sortable text of a type, used for a missing sequence column."""
    if kind == "timestamp":
        return "'0001-01-01T00:00:00.000000'"
    if kind == "date":
        return "'0001-01-01'"
    if kind == "string":
        return "''"
    digits = decimal_digits(kind)
    return text("0" * (_width(*digits) if digits else _LONG_DIGITS))


def event_time(entry: Entry) -> str:
    """Return SQL for the time of a change at the source; NULL if the source has no time."""
    if entry.event_time is None:
        return "cast(null as timestamp)"
    if entry.event_time[1] == "bigint":
        return _MILLIS.format("_time")
    return exact("_time", "timestamp")


# ---------------------------------------------------------------- operation and faults


def operation(layout: FileLayout, has_code: bool) -> str:
    """Return SQL for the operation of a row; NULL for an unknown code, ``load`` in full loads."""
    if layout.load == "inserts":
        return "'insert'"
    if layout.load == "upserts":
        return "_code"
    if not has_code or layout.load == "full":
        return "'load'"
    cases = " ".join(f"when {text(k)} then {text(v)}" for k, v in layout.codes)
    return f"case _code {cases} end"


def fault(entry: Entry, layout: FileLayout, has_code: bool, columns: Sequence[str]) -> str:
    """Return SQL for the first reason why a row is bad, or NULL."""
    cases = ["when _broken is not null then _broken"]
    if has_code and layout.load == "changes":
        legal = ", ".join(code for code, _ in layout.codes)
        cases.append(
            "when _op is null then concat('operation ', "
            f"coalesce(concat('\"', _code, '\"'), 'missing'), {text(f' is not one of {legal}')})"
        )
    cases += [
        f"when _op <> 'truncate' and {own(k)} is null then {text(f'key {k} is missing')}"
        for k in entry.key
    ]
    # Keys are compared as texts. Files are as they were delivered; of messages we can ask more.
    cases += [
        f"when _op <> 'truncate' and cast(try_cast({own(k)} as {kind}) as string) <> {own(k)} "
        f"then concat({text(f'key {k} is not written as a plain {kind}: ')}, {own(k)})"
        for k in entry.key
        if entry.topic and (kind := entry.columns[k]) in ("bigint", "int", "smallint", "tinyint")
    ]
    cases += [case for i, pair in enumerate(entry.sequence) for case in _sequence_faults(i, *pair)]
    if entry.event_time is not None:
        name, kind = entry.event_time
        what = "a time in milliseconds" if kind == "bigint" else "a time"
        cases.append(
            f"when _time is not null and {event_time(entry)} is null then "
            f"concat({text(f'{name} is not {what}: ')}, _time)"
        )
    cases += [
        f"when {own(c)} is not null and {typed(entry, c)} is null "
        f"then concat({text(f'{c} is not a {kind}: ')}, {own(c)}{_hint(entry, c)})"
        for c, kind in entry.columns.items()
        if kind != "string" and c in columns
    ]
    # A delete or truncate says nothing about values, whatever its row has.
    cases += [
        f"when _op not in ('delete', 'truncate') and not ({condition}) "
        f"then {text(f'rule {name}: {condition}')}"
        for name, condition in entry.rules.items()
    ]
    return f"case {' '.join(cases)} end"


def _sequence_faults(index: int, name: str, kind: str) -> list[str]:
    value = f"_order[{index}]"
    what = kind if kind in ("timestamp", "date", "string") else f"{kind} of 0 or more"
    return [
        # A full load may have no sequence: it is the start of the changes.
        f"when _op <> 'load' and {value} is null then {text(f'{name} is missing')}",
        f"when {value} is not null and {sortable_text(value, kind)} is null "
        f"then concat({text(f'{name} is not a {what}: ')}, {value})",
    ]


def _hint(entry: Entry, column: str) -> str:
    """Return SQL for a hint to append to the reason, if another number type fits the value."""
    kind = entry.columns[column]
    wide, lossy = wider(kind), rounds(own(column), kind)
    hints = []
    if wide is not None and entry.on_wider_types != "widen":
        fits = f"{exact(own(column), wide)} is not null"
        hints.append(f"when {fits} then {text(f' (fits {wide})')}")
    if lossy is not None:
        is_number = f"try_cast({own(column)} as double) is not null"
        hints.append(f"when {lossy} and {is_number} then ' (more decimal places)'")
    return f", case {' '.join(hints)} else '' end" if hints else ""


def typed(entry: Entry, column: str) -> str:
    """Return SQL for a column as its type, or its widest allowed type; NULL if it is invalid."""
    kind = entry.columns.get(column, "string")
    if kind == "string":
        return own(column)
    wide = wider(kind) if entry.on_wider_types == "widen" else None
    return exact(own(column), wide or kind)
