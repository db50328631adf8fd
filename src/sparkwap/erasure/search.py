"""Searches texts and values for the subject's keys and personal values. Pure.

A value such as ``anna@example.com`` is searched for everywhere. A short value such as the key 42
occurs in many files, so it is searched for only in its own columns.
"""

from __future__ import annotations

import base64
import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

WORD_LENGTH = 5
NUMBER_LENGTH = 7
NOT_SIMPLE = r"[^\t-\r -\x7fÀ-ÿ]|\\|base64:"
"""Where a text has other characters than ASCII and Latin-1's letters, an escape or base64.

Control characters are among the others.

`canonical` changes only the spaces of all other texts, and `re.IGNORECASE` only their letters'
case, so they have each token of the words that they contain; see `Search.tokens`.
"""

NO_TOKEN = "[^a-z0-9à-öø-ÿ]"
"""A character between the tokens of a text in lower case."""

_NAME = re.compile(r"[\w-]+")
_LETTERS = re.compile("[\x00-\x7fÀ-ÿ]*")
_TOKEN = re.compile("[a-z0-9à-öø-ÿ]+")
_PAIR = re.compile(r"([A-Za-z_]\w*)=([^/,&\s]*)")
_BASE64 = re.compile(r"base64:([A-Za-z0-9+/]+=*)")
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\ufffd]")
_EPOCH = datetime(1970, 1, 1)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SPACES = frozenset("bfnrt")
# Iceberg keeps the first 16 characters of a text as its bound.
_TRUNCATED = 16


def canonical(text: str) -> str:
    """Return the common form of all spellings of a text: Unicode's NFKC, with single spaces.

    An accented letter can be one character or two, and spaces can be doubled or non-breaking.
    """
    return " ".join(unicodedata.normalize("NFKC", text).split())


def text_of(value: Any) -> str | None:
    """Return a value as text for comparisons; None for null and for nested values."""
    if value is None or isinstance(value, dict | list | tuple):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return canonical(value.decode("utf-8", "replace"))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, float | Decimal):
        # 42.00 and 42.0 are the same number as 42.
        text = format(Decimal(str(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return canonical(str(value))


def distinctive(text: str) -> bool:
    """Return whether a text is long enough to identify the subject anywhere."""
    return len(text) >= (NUMBER_LENGTH if text.isdigit() else WORD_LENGTH)


def unescaped(text: str) -> str:
    """Return a text without JSON's escapes: ``J\\u00f6rg`` becomes ``Jörg``."""

    def character(found: re.Match[str]) -> str:
        code, letter = found.groups()
        return chr(int(code, 16)) if code else " " if letter in _SPACES else letter

    # Two escapes can be a surrogate pair.
    return (
        _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


@dataclass(frozen=True)
class Search:
    """A search for a subject.

    Attributes:
        keys: The subject's keys, as text.
        values: Personal column (lower case) -> the subject's values in it, as text.
        words: The keys and values to search for everywhere, as whole words, in any case.
        names: Words that are also names in the lake. Where names stand, they are not searched for.
        new: New values. A word within one of them, in this very spelling, is not found.
    """

    keys: frozenset[str]
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, keys: Iterable[str], values: Mapping[str, Iterable[str]], texts: Iterable[str]
    ) -> Search:
        """Return a search.

        Args:
            texts: The values that are texts. Numbers and dates are searched for only in their
                own columns.
        """
        keys = frozenset(map(canonical, keys))
        words = {w for w in (*keys, *map(canonical, texts)) if distinctive(w)}
        by_column = {name.lower(): frozenset(map(canonical, v)) for name, v in values.items()}
        return cls(keys, by_column, frozenset(words))

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self.words:
            return None
        words = "|".join(re.escape(word) for word in sorted(self.words, key=len, reverse=True))
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The words that a column of numbers can hold."""
        return frozenset(word for word in self.words if word.isdigit())

    @cached_property
    def tokens(self) -> frozenset[str] | None:
        """One part of each word, of letters and digits alone, in lower case: the rarest, longest.

        A text that contains a word (see `in_text`) has its token, between other characters than
        letters and digits, or is not simple (see `NOT_SIMPLE`). None if a word has no such part.
        """
        return tokens_of(self.words)

    @cached_property
    def raw_tokens(self) -> frozenset[str] | None:
        """The tokens of the words and the keys, for `in_raw`."""
        return tokens_of(self.words | self.keys)

    def in_text(self, text: str) -> bool:
        """Return whether a text contains a word, with or without JSON's escapes or base64."""
        texts = (text, *_decoded(text))
        return any(self._in(self._pattern, one) or self._in_binary(one) for one in texts)

    def in_raw(self, text: str) -> bool:
        """Return whether the raw text of a bad row contains a word or a key.

        A short key may also mean something else there. But nobody can use these rows, so it is
        better to erase one too many.
        """
        if self.in_text(text):
            return True
        return any(self._in(self._key_pattern, one) for one in (text, *_decoded(text)))

    def with_names(self, names: str) -> Search:
        """Return the search with the words that a text of names contains."""
        words = self.words
        while pattern := replace(self, words=words)._pattern:
            found = {word.lower() for word in pattern.findall(names)}
            left = frozenset(word for word in words if word.lower() not in found)
            if left == words:
                break
            words = left
        return replace(self, names=self.words - words)

    @cached_property
    def in_names(self) -> Search:
        """The search where names of the lake stand, such as in schemas and paths."""
        return replace(self, words=self.words - self.names)

    @cached_property
    def in_ids(self) -> Search:
        """The search where ids and names of any project stand, which are words of letters."""
        words = self.in_names.words
        return replace(self, words=frozenset(w for w in words if not _NAME.fullmatch(w)))

    def _in(self, pattern: re.Pattern[str] | None, text: str) -> bool:
        if pattern is None:
            return False
        texts = (text, unescaped(text)) if "\\" in text else (text,)
        return any(self._outside_new(pattern, canonical(one)) for one in texts)

    def _in_binary(self, text: str) -> bool:
        """Return whether bytes have a word after its length, which may look like a letter."""
        if self._sized is None or not _BINARY.search(text):
            return False
        return self._outside_new(self._sized, text, head=1)

    @cached_property
    def _sized(self) -> re.Pattern[str] | None:
        words = (
            f"(?-i:[{re.escape(''.join(_lengths(word)))}]){re.escape(word)}"
            for word in sorted(self.words)
        )
        return re.compile("|".join(words), re.IGNORECASE) if self.words else None

    def _outside_new(self, pattern: re.Pattern[str], text: str, head: int = 0) -> bool:
        """Return whether a pattern, without its head, is elsewhere than within a new value."""
        if self._new_pattern is None:
            return pattern.search(text) is not None
        new = list(_spans(self._new_pattern, text))
        return any(
            not any(begin <= start + head and end <= stop for begin, stop in new)
            for start, end in _spans(pattern, text)
        )

    @cached_property
    def _new_pattern(self) -> re.Pattern[str] | None:
        new = "|".join(re.escape(value) for value in sorted(self.new, key=len, reverse=True))
        return re.compile(rf"(?<!\w)(?:{new})(?!\w)") if new else None

    @cached_property
    def _key_pattern(self) -> re.Pattern[str] | None:
        keys = "|".join(re.escape(key) for key in sorted(self.keys, key=len, reverse=True))
        return re.compile(rf"(?<![\w.])(?:{keys})(?![\w.])") if keys else None

    def in_column(self, value: Any, wanted: frozenset[str]) -> bool:
        """Return whether a cell is one of ``wanted``, or contains a word."""
        text = text_of(value)
        if text is None:
            return False
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return text in wanted or self.in_text(value if isinstance(value, str) else text)

    def in_pairs(self, text: str, wanted: Mapping[str, frozenset[str]]) -> bool:
        """Return whether a path or summary has ``column=value`` with a wanted value."""
        return any(
            canonical(unquote(value)) in wanted.get(name.lower(), frozenset())
            for name, value in _PAIR.findall(text)
        )

    def in_bound(self, text: str | None, wanted: frozenset[str]) -> bool:
        """Return whether a column's lower or upper bound is a wanted value, or a prefix of it."""
        if text is None:
            return False
        if all(canonical(one) in wanted or self.in_text(one) for one in self._readings(text)):
            return True
        if len(text) < _TRUNCATED or any(v.startswith(text[: _TRUNCATED - 1]) for v in self.new):
            return False
        # Iceberg increments the last character of a truncated upper bound. The cut may also
        # separate a letter from its accent.
        start = canonical(text[: _TRUNCATED - 1])
        start = start if start.isascii() else start[:-1]
        return any(value.startswith(start) for value in (*wanted, *self.words))

    def _readings(self, text: str) -> Iterator[str]:
        """Yield a bound, and as it was before its cut if it ends with the start of a new value.

        The data file tells which one is right.
        """
        yield text
        for at in range(len(text) - 1) if len(text) >= _TRUNCATED else ():
            for value in self.new:
                if value.startswith(text[at:-1]) and not re.match(r"\w", text[at - 1 : at]):
                    yield text[:at] + value


def _spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each match, also of those that overlap."""
    found = pattern.search(text)
    while found:
        yield found.span()
        found = pattern.search(text, found.start() + 1)


@lru_cache(32)  # Each batch of rows asks for the same words.
def tokens_of(words: frozenset[str]) -> frozenset[str] | None:
    """Return the tokens of canonical words; see `Search.tokens`."""
    found = [_parts(word) for word in words]
    if not all(found):
        return None
    often = Counter(part for parts in found for part in set(parts))
    return frozenset(min(parts, key=lambda one: (often[one], -len(one))) for parts in found)


def _parts(word: str) -> list[str]:
    """Return the letters and digits in a word that are together, without the host of an address."""
    lower = word.lower()
    parts = [
        (part.start(), part.group())
        for part in _TOKEN.finditer(lower)
        # A letter such as the dotless i also stands for a simple one.
        if _LETTERS.fullmatch(lower[part.start() - 1 : part.start()] + lower[part.end() :][:1])
    ]
    host = lower.find("@")
    return [part for at, part in parts if at < host] or [part for _, part in parts]


def _lengths(word: str) -> set[str]:
    """Return the bytes before a text in Avro, Protobuf, Variant and CBOR, as characters."""
    size = len(word.encode())
    found = {size << 2 | 1 if size < 64 else 0, *([0x60 + size] if size < 24 else ())}
    for number in (size, size * 2):
        while number > 127:
            number >>= 7
        found.add(number)
    return {chr(one) if one < 128 else "\ufffd" for one in found}


def bound_text(kind: str, data: bytes) -> str | None:
    """Return the text of a bound in Iceberg's single-value encoding; None if it has no text."""
    if kind == "string":
        return data.decode("utf-8", "replace").strip()
    if kind == "boolean":
        return text_of(data != b"\x00")
    number = int.from_bytes(data, "little", signed=True)
    if kind in ("int", "long") and len(data) in (4, 8):
        return str(number)
    try:
        if kind == "date" and len(data) == 4:
            return (_EPOCH + timedelta(number)).date().isoformat()
        if kind.startswith("timestamp") and len(data) == 8:
            return text_of(_EPOCH + timedelta(microseconds=number))
    except OverflowError:
        return None
    if kind in ("float", "double"):
        return text_of(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        return text_of(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale))
    return data.decode("utf-8", "replace")


def _decoded(text: str) -> Iterator[str]:
    """Yield the bytes that a text has in base64, as the logs of messages write them, as texts."""
    for encoded in _BASE64.findall(text) if "base64:" in text else ():
        with suppress(ValueError):
            yield base64.b64decode(encoded).decode(errors="replace")
