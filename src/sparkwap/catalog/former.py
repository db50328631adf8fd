"""Former tables that a rollback brings back."""

from __future__ import annotations

from collections.abc import Callable

from sparkwap.catalog import metadata as md
from sparkwap.core.errors import MetadataFileMissing

RESTORED_FROM = "wap.restored-from"
"""The property of a table that came back with another identity: the former metadata file."""


def is_former(
    document: md.Document, former: md.Document, location: str, load: Callable[[str], md.Document]
) -> bool:
    """Return whether a table is a former one that came back."""
    if md.identity(document) == md.identity(former):
        return True
    restored = md.properties_of(document).get(RESTORED_FROM)
    if restored is None or restored == location:
        return restored is not None
    # A forced rollback writes the file that it brings back.
    try:
        return md.identity(load(restored)) == md.identity(former)
    except (MetadataFileMissing, FileNotFoundError):
        return False
