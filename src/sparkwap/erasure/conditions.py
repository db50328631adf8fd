"""SQL conditions that find the rows of a subject. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sparkwap.core.sqltext import quote
from sparkwap.erasure.search import NO_TOKEN, NOT_SIMPLE, Search
from sparkwap.erasure.subject_tables import SubjectTable, is_number, is_whole

_SPACES = r"[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"

# A literal of Spark has doubled backslashes.
_SPACES_SQL, _NOT_SIMPLE_SQL = (one.replace("\\", "\\\\") for one in (_SPACES, NOT_SIMPLE))

# At the end of a folder; Iceberg's object storage layout has folders of bits before them.
_PARTITIONS = "(/([01]{4,8}|[^/=]+=[^/]*))+$"

_CAPITALS = "".join(map(chr, (*range(65, 91), *range(0xC0, 0xD7), *range(0xD8, 0xDF))))


def _forms(text: str) -> set[str]:
    """Return the Unicode forms of a text; Spark SQL has no function that normalizes text."""
    normalize = unicodedata.normalize
    return {text, normalize("NFC", text), normalize("NFD", text), normalize("NFKC", text)}


@dataclass(frozen=True)
class Conditions:
    """SQL that finds rows by hashes, so no statement, log or history of a server has a value.

    Attributes:
        salt: Hex digits, new for each operation.
    """

    salt: str

    def digest(self, text: str) -> str:
        """Return the hash of a text, as `hashed` computes it."""
        plain = re.sub(_SPACES, " ", text).strip(" ")
        return hashlib.sha256(f"{self.salt}:{plain}".encode()).hexdigest()

    def without_values(self, path: str, places: Iterable[SubjectTable]) -> str:
        """Return a path with hashes instead of the partition values of marked columns."""
        columns = (name for one in places for name in (*one.keys, *one.personal, *one.texts))
        marked = {name.lower() for name in columns}

        def hidden(part: re.Match[str]) -> str:
            name = part[1].lower()
            if not any(name == column or name.startswith(f"{column}_") for column in marked):
                return part[0]
            return f"/{part[1]}={self.digest(part[2])[:16]}"

        return re.sub("/([^/=]+)=([^/]*)", hidden, path)

    def folders(self, paths: Collection[str], places: Iterable[SubjectTable]) -> str:
        """Return all folders of files, without those of partitions, with their numbers of files."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.without_values(path, places) for path in paths):
            folder = re.sub(_PARTITIONS, "", path.rpartition("/")[0])
            found.setdefault(folder, []).append(path)
        return ", ".join(
            f"{folder} ({len(files):,} files)" if len(files) > 1 else files[0]
            for folder, files in found.items()
        )

    def hashed(self, column: str, kind: str = "string") -> str:
        """Return SQL for the hash of a column's text, which is that of `search.text_of`."""
        text = f"cast({quote(column)} as string)"
        if is_number(kind) and not is_whole(kind):
            whole = f"cast(try_cast({quote(column)} as decimal(38, 0)) as string)"
            text = f"if({quote(column)} % 1 = 0, {whole}, {text})"
        text = f"trim(regexp_replace({text}, '{_SPACES_SQL}', ' '))"
        return f"sha2(concat('{self.salt}:', {text}), 256)"

    def spelled(self, column: str, keys: Iterable[str]) -> str:
        """Return a condition: a text is a key, or the same whole number in another spelling."""
        number = f"regexp_replace(trim({quote(column)}), '^[+]?(-?)0*([0-9]+)([.]0*)?$', '$1$2')"
        digests = ", ".join(f"'{self.digest(key)}'" for key in sorted(keys))
        return f"coalesce(sha2(concat('{self.salt}:', {number}), 256) in ({digests}), false)"

    def is_in(self, column: str, texts: Iterable[str], kind: str = "string") -> str:
        """Return a condition: a column is one of the texts; never null."""
        digests = sorted({self.digest(form) for text in texts for form in _forms(text)})
        if not digests:
            return "false"
        listed = ", ".join(f"'{digest}'" for digest in digests)
        return f"coalesce({self.hashed(column, kind)} in ({listed}), false)"

    def can_name(self, column: str, tokens: Iterable[str]) -> str:
        """Return a condition: a text has one of the tokens, or is not simple (see `search`)."""
        digests = ", ".join(f"'{self.digest(token)}'" for token in sorted(tokens))
        named = (
            # Spark's `lower` follows the locale of its Java, in which an I can be no ASCII i.
            f"exists(split(translate({quote(column)}, '{_CAPITALS}', '{_CAPITALS.lower()}'), "
            f"'{NO_TOKEN}+'), "
            f"token -> sha2(concat('{self.salt}:', token), 256) in ({digests}))"
            if digests
            else "false"
        )
        return f"({quote(column)} rlike '{_NOT_SIMPLE_SQL}' or {named})"

    def rows(
        self,
        place: SubjectTable,
        search: Search,
        texts: Mapping[str, Iterable[str]],
        types: Mapping[str, str],
    ) -> str:
        """Return a condition for the subject's rows of a table.

        Args:
            texts: Free-text column -> the texts in it that name the subject.
            types: All columns of the table, with their types.
        """
        found = [self.is_in(key, search.keys, types[key]) for key in place.keys]
        found += [self.is_in(column, naming) for column, naming in texts.items()]
        if place.any_cell:
            cells = {*search.keys, *search.words}
            found += [self.is_in(column, cells, kind) for column, kind in types.items()]
        parts = [part for part in found if part != "false"]
        return "(" + " or ".join(parts) + ")" if parts else "false"
