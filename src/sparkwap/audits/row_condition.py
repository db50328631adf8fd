"""Which conditions follow from the values of a row alone. Pure.

What is not known to do so, does not: a condition may have columns of the table, known functions,
keywords, numbers and texts. Spark reads a text without a date as a time of today, and the text
``today`` as a date. So a condition with dates or times may have no column of texts, and only texts
that are whole dates or units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparkwap.core.sqllex import Token

_OF_DATES = frozenset(
    """
    year quarter month day dayofmonth dayofweek hour minute second date_trunc trunc datediff
    date_add date_sub add_months last_day
    """.split()  # noqa: SIM905 - a page of one word a line
)
_SIZED = frozenset(["decimal", "varchar", "char", "numeric"])
_OPERATORS = frozenset("and or not in like rlike regexp between when then else escape".split())  # noqa: SIM905
_FUNCTIONS = (
    _OF_DATES
    | _SIZED
    | _OPERATORS
    | frozenset(
        """
        abs ceil ceiling floor round sign mod pmod power sqrt exp greatest least coalesce nullif
        ifnull nvl nvl2 if isnull isnotnull isnan length char_length character_length octet_length
        lower upper trim ltrim rtrim btrim substring substr left right concat concat_ws replace
        startswith endswith contains instr locate position regexp_like split size cardinality
        array_contains element_at cast try_cast
        """.split()  # noqa: SIM905
    )
)
"""Functions of Spark whose result follows from their arguments, and what may stand before `(`."""
_DATE_TYPES = frozenset(["date", "timestamp", "timestamp_ntz", "timestamp_ltz"])
_WORDS = (
    _SIZED
    | _OPERATORS
    | _DATE_TYPES
    | frozenset(
        """
        is null true false case end as div boolean tinyint byte smallint short int integer bigint
        long float real double dec string binary
        """.split()  # noqa: SIM905
    )
)
"""Keywords and names of types."""
_NUMBER = re.compile(r"\d+(?:e\d*)?(?:l|s|y|f|d|bd)?", re.IGNORECASE | re.ASCII)
_PLAIN = re.compile(r"boolean|int|long|float|double|decimal\(.*\)")
_TEXT = re.compile(r"string|binary|uuid|fixed\[.*\]")
_DATE = re.compile(r"date|timestamp|timestamptz")
"""Types of Iceberg."""
_WHOLE_DATE = re.compile(
    r"'(?:\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?"
    r"|year|quarter|month|week|day|hour|minute|second)'",
    re.IGNORECASE | re.ASCII,
)
_METADATA_COLUMNS = (
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated"
)  # fmt: skip
"""Columns of Iceberg that are not in the rows; names that begin like them are taken for them."""
_OF_THE_SESSION = frozenset(
    ["current_date", "current_time", "current_timestamp", "current_user", "localtimestamp",
     "session_user", "user"]
)  # fmt: skip
"""Names that Spark may take for functions without brackets, although a column has this name."""


def follows_from_the_row(condition: Sequence[Token], fields: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the truth of a condition follows from the values of a row alone.

    Args:
        condition: Its tokens.
        fields: The columns of the table, as Iceberg's schema has them. Names with dots are not
            allowed, because what they mean depends on the name of the table.
    """
    columns: dict[str, set[str]] = {}
    for one in fields:
        columns.setdefault(_folded(one["name"]), set()).update(_types(one["type"]))
    types: set[str] = set()
    dated = False
    texts = []
    befores, afters = [None, *condition], [*condition[1:], None]
    for before, token, after in zip(befores, condition, afters, strict=False):
        called = after is not None and after.text == "("
        if token.kind == "string":
            # After another name, Spark may read it in another way; after a string, as its end.
            if token.text.startswith('"') or not _may_stand_before_a_text(before):
                return False
            texts.append(token.text)
        elif token.text == "." and before is not None and not before.text.isdecimal():
            return False
        elif token.is_name:
            word = _folded(token.value)
            if word.startswith(_METADATA_COLUMNS) or word in _OF_THE_SESSION:
                return False
            bare = token.kind == "word"
            known = bare and word in (_FUNCTIONS if called else _WORDS)
            known = known or (bare and not called and _NUMBER.fullmatch(word) is not None)
            if not called and word in columns:
                known = True
                types |= columns[word]
            if not known:
                return False
            dated = dated or word in _OF_DATES or word in _DATE_TYPES
        elif token.kind == "unclosed":
            return False
    if not all(
        _PLAIN.fullmatch(one) or _TEXT.fullmatch(one) or _DATE.fullmatch(one) for one in types
    ):
        return False
    if not (dated or any(map(_DATE.fullmatch, types))):
        return True
    return all(map(_WHOLE_DATE.fullmatch, texts)) and not any(map(_TEXT.fullmatch, types))


def _may_stand_before_a_text(token: Token | None) -> bool:
    if token is None or token.kind == "symbol":
        return True
    return token.is_word(*_OPERATORS, *_DATE_TYPES)


def _folded(name: str) -> str:
    # Other letters have several forms in lower case.
    return name.lower() if name.isascii() else name


def _types(kind: Any) -> Iterator[str]:
    """Yield the types of the values in a column."""
    if isinstance(kind, str):
        yield kind
        return
    parts = [field["type"] for field in kind.get("fields", ())]
    parts += [kind[part] for part in ("element", "key", "value") if part in kind]
    for part in parts:
        yield from _types(part)
