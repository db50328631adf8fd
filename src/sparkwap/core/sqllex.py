"""Splits Spark SQL into the tokens of Spark's own lexer.

Simple patterns would misread SQL text: a raw string ends at its first quote, bracketed comments
nest, a hint is not a comment, and quotes are doubled inside quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

TokenKind = Literal["word", "quoted", "string", "symbol", "unclosed"]


@dataclass(frozen=True)
class Token:
    """A token; blanks and comments are not tokens.

    Attributes:
        kind: ``word`` for keywords, bare names and the digits of numbers; ``quoted`` for a name in
            backquotes; ``string`` for a literal in single or double quotes (with double quotes, a
            name if ``spark.sql.ansi.doubleQuotedIdentifiers`` is on); ``symbol`` for one other
            character, or ``/*+``, ``*/`` around a hint; ``unclosed`` for a string, name or comment
            without an end, up to the end of the text, which Spark does not parse.
    """

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @cached_property
    def value(self) -> str:
        """The value: a name or string without its quotes and escapes, a word unchanged."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return _unescaped(self.text) if self.kind == "string" else self.text

    def is_word(self, *words: str) -> bool:
        """Return whether the token is one of these keywords, given in lower case."""
        return self.kind == "word" and self.text.lower() in words

    @property
    def is_name(self) -> bool:
        """Whether the token may be a part of a name."""
        return self.kind in ("word", "quoted")


# Spark does not accept other blanks of Unicode.
_BLANK = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]"
_LETTER = r"[^\W\d_]"
_PATTERN = re.compile(
    rf"""
      (?P<skip>{_BLANK}+|--(?:\\\n|[^\r\n])*)
    | (?P<comment>/\*(?!\+))
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"
        |'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<quoted>`(?:[^`]|``)*+`)
    | (?P<word>{_LETTER}+://[\w/\-.?=&\#%]+|\w+)
    | (?P<unclosed>['"`])
    | (?P<symbol>/\*\+|\*/|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens of one or several statements, complete or not."""
    at = 0
    while (match := _PATTERN.match(sql, at)) is not None:
        kind = match.lastgroup
        if kind == "comment":
            end = _comment_end(sql, at)
            if end is None:
                yield Token("unclosed", sql[at:], at)
                return
            at = end
            continue
        if kind == "unclosed":
            yield Token("unclosed", sql[at:], at)
            return
        if kind != "skip":
            yield Token(kind, match[0], at)  # type: ignore[arg-type]  # the names of the groups
        at = match.end()


def dotted_names(sql: str) -> Iterator[tuple[Token, ...]]:
    """Yield the names in a text, each with its parts: dotted names, and single words.

    The names include tables, columns, functions, keywords, and the digits of decimals.
    """
    return _dotted(tokens(sql))


def _dotted(found: Iterable[Token], *, quotes: bool = False) -> Iterator[tuple[Token, ...]]:
    """Yield the names; with ``quotes``, texts in double quotes count as parts of names too."""
    parts: list[Token] = []
    dotted = False
    for token in found:
        is_name = token.is_name or (quotes and token.text[0] == '"')
        if is_name and (dotted or not parts):
            parts.append(token)
        elif token.text == "." and parts and not dotted:
            dotted = True
            continue
        elif parts:
            yield tuple(parts)
            parts = [token] if is_name else []
        dotted = False
    if parts:
        yield tuple(parts)


def identifier_clauses(found: Sequence[Token]) -> Iterator[Token | None]:
    """Yield the single literal in each `identifier(...)`; None for any other content."""
    for at, token in enumerate(found):
        if token.is_word("identifier") and [next_.text for next_ in found[at + 1 : at + 2]] == [
            "("
        ]:
            inner, end = [*found[at + 2 : at + 4], None, None][:2]
            literal = inner is not None and inner.kind == "string" and "$" not in inner.value
            yield inner if literal and end is not None and end.text == ")" else None


ANY_RELATION = ("*", "*")
"""Stands for an unknown name: an `identifier(...)` without a literal."""

FILES = "/"
"""Stands for the schema where the name is a path of files."""


def relation_names(
    sql: str, schema: str = "default", *, present: bool = False
) -> frozenset[tuple[str, str]]:
    """Return schema and name, in lower case, of all possible tables and views in a text.

    The result may have too many names, but never too few: `a.b` may be a column of a table, and any
    word may be an alias. Callers compare the names with the existing tables. A
    literal that may be a path of files has `FILES` in place of the schema.

    Args:
        schema: The schema of names without a schema.
        present: Only relations whose present rows are read: not as of a time, a snapshot, a branch
            or a tag, not with options, which may have the same effect, and no metadata tables.
    """
    found = list(tokens(sql))
    places = {token.start: at for at, token in enumerate(found)} if present else {}

    def is_left_out(end: Token, gap: int) -> bool:
        return present and _is_as_of(found[(at := places[end.start] + gap) : at + 4])

    names: set[tuple[str, str]] = set()
    # Double quotes may be a name, by a session setting. A single quoted part is most likely a text.
    for name in _dotted(found, quotes=True):
        if len(name) == 1 and name[0].kind == "string":
            continue
        parts = [part.value.lower() for part in name]
        read = [(schema.lower(), parts[0]), *pairwise(parts)]
        if not is_left_out(name[-1], 1):
            names |= set(read[-1:] if present else read)
    for literal in identifier_clauses(found):
        if literal is None:
            names.add(ANY_RELATION)
        elif not is_left_out(literal, 2):  # after the bracket
            names |= relation_names(literal.value, schema, present=present)
    is_call = bool(found) and found[0].is_word("call")
    for literal in (token for token in found if token.kind == "string"):
        if is_call:
            # The table that a procedure reads, such as `table => 'schema.t'`.
            names |= relation_names(literal.value, schema, present=present)
        if literal.value.count("/") > 1:
            # The path of `create temporary view ... options (path '...')`.
            names.add((FILES, literal.value.lower()))
    return frozenset(names)


def _is_as_of(following: Sequence[Token]) -> bool:
    """Return whether the tokens after a name select another state of the table."""
    words = [token.text.lower() for token in following]
    words = words[1:] if words[:1] == ["for"] else words
    timed = words[1:3] == ["as", "of"] and words[0] in _VERSIONS
    return timed or words[:2] == ["with", "("]


_VERSIONS = frozenset({"version", "system_version", "timestamp", "system_time"})


def _comment_end(sql: str, start: int) -> int | None:
    depth, at = 0, start
    while (edge := _COMMENT_EDGE.search(sql, at)) is not None:
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
        if depth == 0:
            return at
    return None


_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[01][0-7]{2})|(?P<one>.))",
    re.DOTALL,
)
_NAMED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
# LIKE has its own escapes for these, so the backslash stays.
_KEPT = {"%": r"\%", "_": r"\_"}


def _unescaped(literal: str) -> str:
    if literal[0] in "rR":
        return literal[2:-1]
    mark, text = literal[0], literal[1:-1]
    # A doubled quote is one quote, but an escaped quote and the next quote are not a doubled quote.
    parts = re.split(r"(\\.)", text, flags=re.DOTALL)
    parts[::2] = [part.replace(mark * 2, mark) for part in parts[::2]]
    return _ESCAPE.sub(_escaped, "".join(parts))


def _escaped(match: re.Match[str]) -> str:
    if code := match["u"] or match["U"]:
        # Spark also accepts codes beyond Unicode; no name has them.
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else "\ufffd"
    if match["octal"]:
        return chr(int(match["octal"], 8))
    character = match["one"]
    return _NAMED.get(character) or _KEPT.get(character) or character
