"""SQL for JSON texts, in which a number keeps its text: ``1.10`` stays ``1.10``."""

from __future__ import annotations

from collections.abc import Sequence

from sparkwap.landing.entry import Entry
from sparkwap.landing.row_sql import TOMBSTONE, quote, text

# Spark reads a number with a fraction as a double. So such numbers are quoted first, with a prefix
# that Unicode reserves for internal use: ``1.10`` becomes "\ufdd01.10".
_MARK = "\ufdd0"
_FRACTION = (
    r'((?:[^"0-9-]++'  # neither text nor number
    r'|"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # a text
    r"|(?!-0(?![0-9]))-?[0-9]++(?![.eE])"  # a whole number: Spark keeps all of its digits
    r"|-(?![0-9]))*+)"
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
    # A number must end here. Quotes would make invalid JSON valid, or change a name.
    r"(?=[ \t\r\n]*+(?:[,}\]]|$))"
)
_MARKED = f'"?{_MARK}([-+.0-9eE]+)"?'


def json_object(value: str, columns: Sequence[str]) -> str:
    """Return SQL for a JSON text as a struct of texts; NULL if it is not a JSON object."""
    schema = ", ".join(f"{quote(c)} string" for c in [*columns, "_corrupt"])
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json({value}, {text(schema)}, {options})"


def exact(value: str) -> str:
    """Return SQL for a JSON text with numbers with fractions as marked texts (see `plain`)."""
    found, quoted = text(rf"\G{_FRACTION}"), text(f'$1"{_MARK}$2"')
    marked = f"regexp_replace({value}, {found}, {quoted})"
    return f"if({value} rlike '[0-9][.eE]|-0', {marked}, {value})"


def plain(value: str) -> str:
    """Return SQL for a value or a part of the JSON text of `exact`, without marks."""
    return (
        f"if(contains({value}, {text(_MARK)}), "
        f"regexp_replace({value}, {text(_MARKED)}, '$1'), {value})"
    )


def json_field(struct: str, name: str) -> str:
    return f"nullif({plain(f'{struct}.{quote(name)}')}, '')"


def is_whole(value: str) -> str:
    """Return SQL for whether a text is one JSON value, with nothing after it.

    Spark's functions stop at the end of the first value. What follows would have to end the array
    in the one text, and the object in the other.
    """
    listed = f"json_array_length(concat('[', {value}, ']')) <=> 1"
    named = f"json_object_keys(concat('{{\"x\":', {value}, '}}')) is not null"
    return f"({listed} and {named})"


def row_text(entry: Entry) -> str:
    """Return SQL for the JSON text with the columns of a row: its text; of a message without a
    value, which says that its key is deleted, the key.

    Kafka Connect writes keys and values with their schema beside them, if it is not told otherwise.
    """
    if not entry.topic:
        return "_text"
    value = message_value()
    if entry.layouts[0].load != "upserts":
        return value
    key = _payload("trim(_message_key)", "_message_key like '%\"payload\"%'")
    if len(entry.key) == 1:
        unquoted = f"coalesce(get_json_object(concat('[', {key}, ']'), '$[0]'), {key})"
        one = f"if({key} like '\"%', {unquoted}, {key})"
        one = f"to_json(named_struct({text(entry.key[0])}, {one}))"
        # A key that is not UTF-8 is no value of a column.
        key = f"if({key} like '{{%' or _message_key like 'base64:%', {key}, {one})"
    return f"if({value} = {text(TOMBSTONE)}, {key}, {value})"


def message_value() -> str:
    """Return SQL for the JSON text of a message's value, without its schema."""
    return _payload("_text", "array_sort(json_object_keys(_text)) = array('payload', 'schema')")


def _payload(value: str, is_wrapped: str) -> str:
    """Return SQL for a JSON text, or for its payload if it has one; numbers keep their texts."""
    payload = plain(f"get_json_object({exact(value)}, '$.payload')")
    return f"if({is_wrapped}, coalesce({payload}, {text(TOMBSTONE)}), {value})"
