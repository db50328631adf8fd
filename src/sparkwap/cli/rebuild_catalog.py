"""``sparkwap rebuild-catalog``: registers published tables of a warehouse in an empty catalog."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import counted

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.core.dbt_cli import Commands
    from sparkwap.publish.catalog_rebuild import Found


@dataclass(frozen=True)
class RebuiltCatalog:
    """The tables and views that a warehouse has for an empty catalog, by ``schema.name``.

    Attributes:
        registered: Whether they were registered.
        files: The metadata file of each.
        missing: The published ones without a usable metadata file, and why; if there is one,
            nothing is registered.
        later: Those with a later file that has other rows or columns on ``main``, and this file.
    """

    registered: bool
    files: Mapping[str, str]
    missing: Mapping[str, str]
    later: Mapping[str, str]


def register_rebuild_catalog(commands: Commands) -> None:
    """Register ``sparkwap rebuild-catalog``."""
    text = "register the published tables of a warehouse in an empty SQL catalog"
    parser = commands.add_parser(
        "rebuild-catalog",
        help=text,
        description=f"{text}, by the ledger and the metadata files, without Spark "
        "(docs/deploy/runbook.md)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    parser.add_argument(
        "--skip", nargs="+", default=[], metavar="SCHEMA.NAME", help="tables and views to leave out"
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=_rebuild)


def _rebuild(parsed: argparse.Namespace) -> CommandEnd:
    # Imported here, because they import PyArrow.
    from sparkwap.publish import catalog_rebuild
    from sparkwap.publish.lake import Lake

    place = call_of(parsed).lake()
    lake = Lake(place.name, place.properties)
    try:
        found = catalog_rebuild.find(lake, [_identifier(name) for name in parsed.skip])
        registered = not found.missing and not parsed.dry_run
        if registered:
            catalog_rebuild.register(lake, found.pointers)
    finally:
        lake.close()
    for line in _lines(found, registered=registered):
        print(line)
    result = RebuiltCatalog(
        registered,
        {".".join(one.identifier): one.location for one in found.pointers},
        _named(found.missing),
        _named(found.later),
    )
    return CommandEnd("rejected" if found.missing else "done", result)


def _identifier(name: str) -> Identifier:
    schema, dot, table = name.partition(".")
    if not dot:
        raise ConfigError(f"--skip {name}: a name is schema.table. Nothing was changed.")
    return schema, table


def _named(found: Mapping[Identifier, str]) -> dict[str, str]:
    return {".".join(one): text for one, text in found.items()}


def _lines(found: Found, *, registered: bool) -> Iterator[str]:
    for pointer in found.pointers:
        yield f"  {pointer.kind:<6} {'.'.join(pointer.identifier)}  {pointer.location}"
    for name, file in _named(found.later).items():
        yield f"  later  {name}  {file} has other rows or columns on main, and is left out"
    for name, reason in _named(found.missing).items():
        yield f"  missing  {name}: {reason}"
    count = f"{counted(len(found.pointers), 'pointer')} to metadata files"
    if registered:
        yield f"Registered {count}. Next: sparkwap status"
    elif found.missing:
        names = " ".join(_named(found.missing))
        yield (
            "Nothing was registered. Restore these files from a backup, or leave the tables out "
            f"and build them again: sparkwap rebuild-catalog --skip {names}"
        )
    else:
        yield f"Would register {count}. Nothing was changed."
