"""Former tables that a rollback brings back."""

from __future__ import annotations

from sparkwap.catalog import metadata as md

RESTORED_FROM = "wap.restored-from"
"""The property of a table that came back with another identity: the former metadata file."""


def is_former(document: md.Document, former: md.Document, location: str) -> bool:
    """Return whether a table is a former one that came back.

    Args:
        document: The table's metadata.
        former: The former table's metadata.
        location: The former table's metadata file.
    """
    if md.identity(document) == md.identity(former):
        return True
    return md.properties_of(document).get(RESTORED_FROM) == location
