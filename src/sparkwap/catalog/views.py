"""Views: from the side schema to the name that readers use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparkwap.catalog.metadata import Document

# What looks like a schema's name in a string, in a comment or in part of a quoted name is none.
_SKIPPED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|`[^`]*`"""


def rewrite_sql(sql: str, schemas: Mapping[str, str]) -> str:
    """SQL in which each reference into a side schema goes to the schema that it stands beside.

    Args:
        sql: The text of a view.
        schemas: Side schema -> schema. Names compare without regard to case, as Spark's do.
    """
    if not schemas:
        return sql
    by_name = {side.lower(): schema for side, schema in schemas.items()}
    names = "|".join(re.escape(side) for side in sorted(schemas, key=len, reverse=True))
    pattern = re.compile(
        rf"`(?P<quoted>{names})`(?=\s*\.)|{_SKIPPED}|(?<!\w)(?P<bare>{names})(?=\s*\.)",
        re.IGNORECASE | re.DOTALL,
    )

    def replaced(match: re.Match[str]) -> str:
        if match["quoted"]:
            return f"`{by_name[match['quoted'].lower()]}`"
        return by_name[match["bare"].lower()] if match["bare"] else match.group()

    return pattern.sub(replaced, sql)


def requalify_sql(sql: str, sides: Mapping[tuple[str, str], str]) -> str:
    """SQL in which references to some tables go to where they stand beside their schema.

    The reverse of `rewrite_sql`, table by table, as the others of the schema stay where they are.

    Args:
        sql: The text of a view.
        sides: ``(schema, name)`` -> side schema. Names compare without regard to case.
    """
    if not sides:
        return sql
    by_name = {(schema.lower(), name.lower()): side for (schema, name), side in sides.items()}
    schemas = "|".join(re.escape(schema) for schema in sorted({s for s, _ in by_name}))
    names = "|".join(re.escape(name) for name in sorted({n for _, n in by_name}, key=len)[::-1])
    pattern = re.compile(
        rf"(?P<schema>`(?:{schemas})`|(?<![\w`])(?:{schemas}))(?P<dot>\s*\.\s*)"
        rf"(?P<name>`(?:{names})`|(?:{names})(?![\w`]))|{_SKIPPED}",
        re.IGNORECASE | re.DOTALL,
    )

    def replaced(match: re.Match[str]) -> str:
        if not match["schema"]:
            return match.group()
        key = (match["schema"].strip("`").lower(), match["name"].strip("`").lower())
        side = by_name.get(key)
        return f"`{side}`{match['dot']}{match['name']}" if side else match.group()

    return pattern.sub(replaced, sql)


def reopened(
    published: Document, location: str, sides: Mapping[tuple[str, str], str], identity: str
) -> Document:
    """The metadata of a published view as it stands in a side schema again.

    Args:
        published: The published view's metadata.
        location: Its folder there.
        sides: ``(schema, name)`` -> side schema, of all that stands in one.
        identity: An identity of its own.
    """
    versions = [
        {
            **version,
            "representations": [
                {**entry, "sql": requalify_sql(entry["sql"], sides)} if "sql" in entry else entry
                for entry in version["representations"]
            ],
        }
        for version in published["versions"]
    ]
    return {**published, "versions": versions, "location": location, "view-uuid": identity}


def publishable(side: Document, live: Document | None, schemas: Mapping[str, str]) -> Document:
    """The metadata of a side view as it is published.

    Args:
        side: The side view's metadata.
        live: The metadata of the live view that it takes the place of, None if there is none.
        schemas: Side schema -> schema, for all side schemas of the audit branch.

    Returns:
        Its current version alone, as earlier ones were never published, with the identity and the
        location of the live view where there is one.
    """
    current = side["current-version-id"]
    versions = [
        _version(version, schemas)
        for version in side["versions"]
        if version["version-id"] == current
    ]
    log = [entry for entry in side.get("version-log", ()) if entry["version-id"] == current]
    document = {**side, "versions": versions, "version-log": log}
    document["location"] = _location(side["location"], schemas)
    if live is not None:
        document["view-uuid"] = live["view-uuid"]
        document["location"] = live["location"]
    return document


def _version(version: Mapping[str, Any], schemas: Mapping[str, str]) -> Mapping[str, Any]:
    namespace = [schemas.get(part, part) for part in version.get("default-namespace", ())]
    representations = [
        {**entry, "sql": rewrite_sql(entry["sql"], schemas)} if "sql" in entry else entry
        for entry in version["representations"]
    ]
    return {**version, "default-namespace": namespace, "representations": representations}


def _location(location: str, schemas: Mapping[str, str]) -> str:
    return "/".join(schemas.get(part, part) for part in location.split("/"))
