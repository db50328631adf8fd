"""Which conditions follow from the values of a row alone. Pure.

What is not known to do so, does not: a condition may have columns of the table, known functions and
keywords at their places, numbers and texts. Spark reads the text ``12:00`` as a time of today, and
``today`` as a date. So a condition with dates or times has no texts but whole dates and units, and
nothing that makes texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkwap.core.sqllex import Token


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_DATES = _words(
    """
    year quarter month day dayofmonth dayofweek hour minute second date_trunc trunc datediff
    date_add date_sub add_months last_day
    """
)
_OF_ANY = _words(
    """
    coalesce nullif ifnull nvl nvl2 if isnull isnotnull greatest least cast try_cast
    abs ceil ceiling floor round sign mod pmod power sqrt exp isnan size cardinality
    """
)
_OF_TEXTS = _words(
    """
    length char_length character_length octet_length lower upper trim ltrim rtrim btrim substring
    substr left right concat concat_ws replace startswith endswith contains instr locate position
    regexp_like split array_contains element_at
    """
)
_FUNCTIONS = _OF_DATES | _OF_ANY | _OF_TEXTS
"""Functions of Spark whose result follows from their arguments."""
_DATE_TYPES = _words("date timestamp timestamp_ntz timestamp_ltz")
_TEXT_TYPES = _words("string varchar char binary")
_TYPES = (
    _DATE_TYPES
    | _TEXT_TYPES
    | _words(
        """
        boolean tinyint byte smallint short int integer bigint long float real double decimal dec
        numeric
        """
    )
)
_LITERALS = _words("null true false")
_BEFORE_A_VALUE = _words("not case when")
_AFTER_A_VALUE = _words(
    "and or not in like rlike regexp between when then else escape is div end as"
)
_AFTER_NOT = _words("in like rlike regexp between")
_NUMBER = re.compile(r"\d+(?:e\d+)?(?:f|d|bd)?|\d+[lsy]", re.IGNORECASE | re.ASCII)
_NUMBER_TYPE = re.compile(r"boolean|int|long|float|double|decimal\(.*\)")
_TEXT_TYPE = re.compile(r"string|binary|uuid|fixed\[.*\]")
_DATE_TYPE = re.compile(r"date|timestamp|timestamptz")
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
_OF_THE_SESSION = _words(
    "current_date current_time current_timestamp current_user localtimestamp session_user user"
)
"""Names that Spark may take for functions without brackets, although a column has this name."""


@dataclass
class _Found:
    """What a condition has."""

    types: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    words: set[str] = field(default_factory=set)


def follows_from_the_row(condition: Sequence[Token], fields: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the truth of a condition follows from the values of a row alone.

    Args:
        fields: The columns of the table, as Iceberg's schema has them. A name in another case may
            be a variable (``spark.sql.caseSensitive``). Names with dots are not allowed, because
            what they mean depends on the name of the table.
    """
    columns: dict[str, set[str]] = {}
    for one in fields:
        columns.setdefault(one["name"], set()).update(_types(one["type"]))
    found = _read(condition, columns)
    if found is None:
        return False
    kinds = (_NUMBER_TYPE, _TEXT_TYPE, _DATE_TYPE)
    if not all(any(kind.fullmatch(one) for kind in kinds) for one in found.types):
        return False
    dated = found.words & (_OF_DATES | _DATE_TYPES) or any(map(_DATE_TYPE.fullmatch, found.types))
    if not dated:
        return True
    makes_texts = found.words & (_OF_TEXTS | _TEXT_TYPES)
    has_texts = any(map(_TEXT_TYPE.fullmatch, found.types))
    return not makes_texts and not has_texts and all(map(_WHOLE_DATE.fullmatch, found.texts))


def _read(condition: Sequence[Token], columns: Mapping[str, set[str]]) -> _Found | None:
    """Return what a condition has; None if it has something unknown, or at an unknown place."""
    found = _Found()
    # Many keywords may be names, too, and `*` may be all columns: at other places they are.
    after_value = False
    infix_not = False
    before: Token | None = None
    for token, after in zip(condition, [*condition[1:], None], strict=True):
        word = token.value.lower() if token.is_name else ""
        bare = token.kind == "word"
        if before is not None and before.text == "." and not token.text.isdecimal():
            return None
        if token.kind == "symbol":
            if not _is_at_its_place(token, before, after_value):
                return None
            after_value = token.text in ")]"
        elif token.kind == "string":
            if after_value or token.text.startswith('"') or "$" in token.text:
                return None
            found.texts.append(token.text)
            after_value = True
        elif not token.is_name or word.startswith(_METADATA_COLUMNS) or word in _OF_THE_SESSION:
            return None
        elif bare and not word.isascii():
            # Spark reads the keyword `current_time` with a dotless i, too.
            return None
        elif after_value:
            if not (bare and word in _AFTER_A_VALUE) or (
                word == "is" and not _may_follow_is(after)
            ):
                return None
            infix_not = word == "not"
            if infix_not and not (after is not None and after.is_word(*_AFTER_NOT)):
                return None
            after_value = word == "end"
        elif infix_not:
            infix_not = False
        elif before is not None and before.is_word("as"):
            if not (bare and word in _TYPES):
                return None
            found.words.add(word)
            after_value = True
        elif bare and word in _BEFORE_A_VALUE:
            if not _begins(word, before, after):
                return None
        elif after is not None and after.text == "(":
            if not (bare and word in _FUNCTIONS):
                return None
            found.words.add(word)
        elif bare and word in _DATE_TYPES and after is not None and after.kind == "string":
            found.words.add(word)
        elif token.value in columns:
            found.types |= columns[token.value]
            after_value = True
        elif bare and (word in _LITERALS or _NUMBER.fullmatch(word)):
            after_value = True
        else:
            return None
        before = token
    return found if after_value else None


def _is_at_its_place(symbol: Token, before: Token | None, after_value: bool) -> bool:
    """Return whether a symbol is one that may stand after, or not after, a value."""
    text = symbol.text
    if text == "(":
        # The size of a type.
        return not after_value or (before is not None and before.is_word(*_TYPES))
    if text in "+-":
        return True
    if text in "<>=!":
        return after_value or (before is not None and before.text in "<>=!")
    if text == ".":
        return before is not None and before.text.isdecimal()
    return after_value and text in (")", "[", "]", ",", "*", "/", "%")


def _begins(word: str, before: Token | None, after: Token | None) -> bool:
    """Return whether ``not``, ``case`` or ``when`` is a keyword at a place without a value before.

    ``not - 1`` and ``case(1)`` would be a variable and a function.
    """
    if after is None:
        return False
    if word == "not":
        if before is not None and before.is_word("is"):
            return after.is_word(*_LITERALS)
        return after.text == "(" or (after.is_name and not after.is_word(*_AFTER_A_VALUE))
    if word == "when":
        return before is not None and before.is_word("case")
    return after.is_name and (after.is_word("when") or not after.is_word(*_AFTER_A_VALUE))


def _may_follow_is(token: Token | None) -> bool:
    return token is not None and token.is_word("not", *_LITERALS)


def _types(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
        return
    parts = [field["type"] for field in kind.get("fields", ())]
    parts += [kind[part] for part in ("element", "key", "value") if part in kind]
    for part in parts:
        yield from _types(part)
