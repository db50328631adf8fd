"""Converts views between a side schema and the schema that readers use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise

from sparkwap.catalog.metadata import Document, current_version
from sparkwap.catalog.model import Identifier
from sparkwap.core.names import folded
from sparkwap.core.sqllex import Token, dotted_names, identifier_clauses, relation_names, tokens
from sparkwap.core.sqltext import quote


def rewrite_sql(sql: str, schemas: Mapping[str, str]) -> str:
    """Return SQL with each reference to a side schema replaced by its live schema.

    Literals are replaced, too, so that the view returns the same rows as if it were built on the
    live tables. Comments are not. The case of names does not matter, as in Spark.
    """
    if not schemas:
        return sql
    by_name = {side.lower(): schema for side, schema in schemas.items()}
    parts = [part for name in dotted_names(sql) for part in name[:-1]]
    changes = [(part, by_name[part.value.lower()]) for part in parts
               if part.value.lower() in by_name]  # fmt: skip
    named = [(part, quote(new) if part.kind == "quoted" else new) for part, new in changes]
    sides = _whole(by_name)
    literals = [
        (token, sides.sub(lambda found: by_name[found[0].lower()], token.text))
        for token in tokens(sql)
        if token.kind == "string"
    ]
    return _replaced(sql, [*named, *literals])


def requalify_sql(sql: str, sides: Mapping[tuple[str, str], str]) -> str:
    """Return SQL with references to some tables replaced by references to their side schema.

    The reverse of `rewrite_sql`, for these tables only.
    """
    by_name = {folded(identifier): side for identifier, side in sides.items()}
    pairs = [pair for name in dotted_names(sql) for pair in pairwise(name)]
    found = [(schema, by_name.get(folded((schema.value, name.value))))
             for schema, name in pairs]  # fmt: skip
    return _replaced(sql, [(schema, quote(side)) for schema, side in found if side is not None])


def _replaced(sql: str, changes: Iterable[tuple[Token, str]]) -> str:
    parts, at = [], 0
    for token, text in sorted(changes, key=lambda change: change[0].start):
        parts += [sql[at : token.start], text]
        at = token.end
    return "".join([*parts, sql[at:]])


def reads_unaudited(
    document: Document, sides: Collection[str], branches: Collection[str]
) -> str | None:
    """Return how a view could read unaudited rows; None if it provably cannot.

    A text is safe only if the name of a side schema is nowhere in it: not in a name, not in a
    literal, and not composed of parts.

    Args:
        document: The metadata of a view as it would be published.
        sides: All side schemas of the lake.
        branches: The run's audit branch, and the audit branches of tables that the view reads.

    Returns:
        The problem, as a predicate of "the text".
    """
    version = current_version(document)
    if {side.lower() for side in sides} & {s.lower() for s in version.get("default-namespace", ())}:
        return "resolves unqualified names in a side schema"
    pattern = _whole(sides) if sides else None
    lower = frozenset(branch.lower() for branch in branches)
    return next(
        (problem for sql in _texts(version) if (problem := _unaudited(sql, pattern, lower))), None
    )


def reads(document: Document, *, present: bool = False) -> frozenset[Identifier]:
    """Return schema and name, in lower case, of all relations that a view may read."""
    version = current_version(document)
    schema = ".".join(version.get("default-namespace", ())) or "default"
    found = (relation_names(sql, schema, present=present) for sql in _texts(version))
    return frozenset().union(*found)


def _texts(version: Document) -> list[str]:
    return [entry["sql"] for entry in version["representations"] if "sql" in entry]


def _whole(sides: Iterable[str]) -> re.Pattern[str]:
    longest = sorted(sides, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)", re.IGNORECASE)


def _unaudited(sql: str, sides: re.Pattern[str] | None, branches: frozenset[str]) -> str | None:
    found = list(tokens(sql))
    in_options = False
    for at, token in enumerate(found):
        value = token.value.lower()
        side = sides.search(value) if sides else None
        if side is not None or token.kind == "unclosed":
            return (
                f"names the side schema {side[0]}" if side else "has an unclosed quote or comment"
            )
        before = found[max(at - 1, 0) : at]
        # `with (` begins the options of a read; no query begins like this.
        in_options = token.text != ")" and (
            in_options or (token.text == "(" and any(one.is_word("with") for one in before))
        )
        suffix = value.removeprefix("branch_")
        named = value != suffix and token.is_name and any(one.text == "." for one in before)
        as_of = token.kind == "string" and any(one.is_word("of") for one in before)
        branch = suffix if named else value
        if branch in branches and (named or as_of or in_options):
            return f"reads the audit branch {branch}"
    for literal in identifier_clauses(found):
        if literal is None:
            return "composes a name in identifier(...)"
        if problem := _unaudited(literal.value, sides, branches):
            return problem
    return None


def reopened(
    published: Document, location: str, sides: Mapping[tuple[str, str], str], identity: str
) -> Document:
    """Return the metadata of a published view for a side schema.

    Args:
        location: The folder in the side schema.
        sides: ``(schema, name)`` -> side schema, of all side objects.
    """
    versions = [
        _with_texts(version, lambda sql: requalify_sql(sql, sides))
        for version in published["versions"]
    ]
    return {**published, "versions": versions, "location": location, "view-uuid": identity}


def content(document: Document) -> str:
    """Return a hash (SHA-256, hex) of the text of a view, without times and locations."""
    text = json.dumps(current_version(document)["representations"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def publishable(side: Document, live: Document | None, schemas: Mapping[str, str]) -> Document:
    """Return the metadata of a side view for its publish.

    Args:
        live: The metadata of the live view that it replaces; None if there is none.
        schemas: Side schema -> schema, for all side schemas of the audit branch.

    Returns:
        Only the current version, because earlier versions were never published, with the UUID and
        the location of the live view, if there is one.
    """
    current = current_version(side)
    former_log = side.get("version-log", ())
    log = [entry for entry in former_log if entry["version-id"] == current["version-id"]]
    document = {**side, "versions": [_version(current, schemas)], "version-log": log}
    if live is not None:
        return {**document, "view-uuid": live["view-uuid"], "location": live["location"]}
    parts = side["location"].split("/")
    return {**document, "location": "/".join(schemas.get(part, part) for part in parts)}


def _version(version: Document, schemas: Mapping[str, str]) -> Document:
    namespace = [schemas.get(part, part) for part in version.get("default-namespace", ())]
    rewritten = _with_texts(version, lambda sql: rewrite_sql(sql, schemas))
    return {**rewritten, "default-namespace": namespace}


def _with_texts(version: Document, rewrite: Callable[[str], str]) -> Document:
    """Return a version of a view with all its texts rewritten."""
    representations = [
        {**entry, "sql": rewrite(entry["sql"])} if "sql" in entry else entry
        for entry in version["representations"]
    ]
    return {**version, "representations": representations}
