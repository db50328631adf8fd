"""Reads one SQL statement from its beginning, token by token, as Spark does."""

import re

from sparkwap.core import sqllex

Name = tuple[str, ...]
"""A name part by part, as it is written, without quotes: `("lake", "insurance", "Policies")`."""

_BRACKETS = {"(": 1, ")": -1}
SETTING_KEY = re.compile(r"[\w.:-]+", re.ASCII)
"""A key of `set` and `reset`, as far as the guard reads it."""

_ASSIGNMENT = re.compile(r"\s*(`(?:[^`]|``)*`|[^=;\s]*)\s*(=?)")


class UnreadableStatement(Exception):
    """Spark may read the statement differently than the guard."""


class StatementReader:
    """Reads a statement from its beginning, token by token.

    Tokens are in lower case, names as they are written; the end is an empty token.
    """

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = sqllex.tokens(sql)
        self._read: list[sqllex.Token] = []
        self._at = 0
        self.last = ""

    def peek(self) -> str:
        """Return the next token and stay before it."""
        token = self._token()
        return "" if token is None else token.text.lower()

    def next(self) -> str:
        """Return the next token and go past it."""
        self.last = self.peek()
        self._at += 1 if self.last else 0
        return self.last

    def take(self, *words: str) -> bool:
        """Go past these words if they come next, all of them."""
        start = self._at
        for word in words:
            if self.next() != word:
                self._at = start
                return False
        return True

    def take_any(self, *words: str) -> bool:
        """Go past the next token if it is one of these words."""
        return any(self.take(word) for word in words)

    def take_keyword(self, word: str) -> None:
        """Go past an optional word, unless a name begins with it."""
        start = self._at
        if self.take(word) and self.peek() == ".":
            self._at = start

    def name(self) -> Name:
        """Go past a name and return its parts."""
        parts = self._part()
        while self.take("."):
            parts += self._part()
        return parts

    def name_as_written(self) -> str:
        """Go past a name and return its text."""
        first = self._token()
        self.name()
        return self._sql[first.start if first else 0 : self._end()]

    def setting(self) -> tuple[str, str]:
        """Go to the end of a `set` or `reset`, and return its key and what follows that.

        Like Spark, this reads the text and not its tokens: a key may contain any character.
        """
        match = _ASSIGNMENT.match(self._sql, self._end())
        if match is None:
            return "", ""
        return match[1].strip("`"), match[2] or self._sql[match.end() :].strip(" ;\n\t")

    def has_clause(self, *words: str) -> bool:
        """Return whether one of these words comes before the query, outside of brackets."""
        while (token := self.next()) not in ("", "as", "select", "with", "from", "values"):
            if token in words:
                return True
            if token == "(":
                self.skip_brackets()
        return False

    def properties(self) -> list[str]:
        """Go to the end of a `set` or `unset` of table properties, and return what it names.

        Each text begins with the key, in lower case; a value without `=` follows it at once.
        """
        if not (self.take("set", "tblproperties") or self.take("unset", "tblproperties")):
            return []
        self.take("if", "exists")
        found: list[str] = []
        is_key = False
        while (token := self._token()) is not None:
            self._at += 1
            if token.text in ("(", ","):
                found.append("")
                is_key = True
            elif token.text == "=":
                is_key = False
            elif is_key:
                found[-1] += token.value.lower()
        return found

    def skip_ctes(self) -> None:
        """Go past the common table expressions that `with` begins."""
        recursive = self.take("recursive")
        if recursive and self.peek() in ("as", "("):  # it is a name here
            self._at -= 1
        while True:
            self._part()
            if self.take("("):
                self.skip_brackets()
                if self.take(","):  # that was the body, not a list of columns
                    continue
                if self.peek() not in ("as", "max", "("):
                    return
            if self.take("max", "recursion", "level"):
                self.next()
            self.take("as")
            if not self.take("("):
                raise UnreadableStatement("its common table expressions are not understood")
            self.skip_brackets()
            if not self.take(","):
                return

    def take_insert(self) -> bool:
        """Go past the next `insert` that begins a clause, wherever it is."""
        while token := self.next():
            if token == "insert" and self.peek() in ("into", "overwrite", "with"):
                return True
        return False

    def skip_brackets(self) -> None:
        """Go past the end of the bracket that the last token has opened."""
        depth = 1
        while depth:
            token = self._token()
            if token is None:
                raise UnreadableStatement("a bracket has no end")
            self._at += 1
            depth += _BRACKETS.get(token.text, 0)

    def _part(self) -> Name:
        token = self._token()
        if token is None or not (token.is_name or token.text[0] == '"'):
            raise UnreadableStatement("a name is missing")
        self._at += 1
        if token.is_word("identifier") and self.take("("):
            return self._named_by_text()
        return (token.text[1:-1].replace('""', '"') if token.text[0] == '"' else token.value,)

    def _named_by_text(self) -> Name:
        """Return the name in `identifier('a.b')`; any other expression is unreadable."""
        token = self._token()
        self._at += 1
        if token is None or token.kind != "string" or not self.take(")"):
            raise UnreadableStatement("Spark has to evaluate the name in `identifier(...)`")
        inner = StatementReader(token.value)
        name = inner.name()
        if inner.peek():
            raise UnreadableStatement("the name in `identifier(...)` is not understood")
        return name

    def _token(self) -> sqllex.Token | None:
        while self._at >= len(self._read):
            token = next(self._tokens, None)
            if token is None:
                return None
            if token.kind == "unclosed":
                raise UnreadableStatement("a quote or comment has no end")
            self._read.append(token)
        return self._read[self._at]

    def _end(self) -> int:
        return self._read[self._at - 1].end if self._at else 0
