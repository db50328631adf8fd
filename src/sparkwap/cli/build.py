"""``sparkwap build``: bring the lake up to the landing folder, one gated build per drop.

A drop is all landing files of one load date. Each is read, built, audited and published before
the next one is touched, so that a history sees every state, and a bad drop holds up only what
came after it. What was read already is written in the raw tables (see `sparkwap.landing`); it is
looked up in the catalog, without Spark.

dbt is run as a program, once to learn of the raw models and once per drop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from sparkwap import landing
from sparkwap.core.dbt_cli import parse_call, say
from sparkwap.core.errors import ConfigError
from sparkwap.landing import LandingError, LandingFile
from sparkwap.landing.entry import UNTIL
from sparkwap.landing.raw_models import RawModel, known_files, raw_models, switched_off

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_DATES_SHOWN = 3


@dataclass(frozen=True)
class Drop:
    """The unread files of one load date; None for those whose date only their events tell."""

    load_date: date | None
    files: tuple[LandingFile, ...]

    def __str__(self) -> str:
        return str(self.load_date or "without a date")


# ---------------------------------------------------------------- decisions


def drops(unread: Iterable[LandingFile], until: date | None = None) -> list[Drop]:
    """Unread files by load date, oldest first, up to ``until``.

    Files without a date are read by whatever run comes next, so they go with the first drop.
    """
    by_date: dict[date, list[LandingFile]] = {}
    dateless = []
    for file in unread:
        if file.load_date is None:
            dateless.append(file)
        elif until is None or file.load_date <= until:
            by_date.setdefault(file.load_date, []).append(file)
    found = [Drop(day, tuple(by_date[day])) for day in sorted(by_date)]
    if not dateless:
        return found
    first, *others = found or [Drop(None, ())]
    return [Drop(first.load_date, (*dateless, *first.files)), *others]


def unread_files(
    models: Sequence[RawModel], known: Mapping[str, str], tell: Callable[[str], None]
) -> list[LandingFile]:
    """All landing files that are not among the known ones (name to SHA-256).

    What is wrong with the files of one model is told, and left to its build to fail of.

    Raises:
        LandingError: something is wrong with the files of each model; the first.
    """
    found, faults = [], []
    for model in models:
        try:
            files = landing.pending(landing.list_files(model.root, model.entry), known)
        except LandingError as error:
            faults.append(error)
        else:
            found += files
    if faults and len(faults) == len(models):
        raise faults[0]
    for fault in faults:
        tell(str(fault))
    return found


def stopped(drop: Drop, later: Sequence[Drop], code: int) -> str:
    """What to say when a drop was not published."""
    how = f"dbt ended with code {code}" if code else "dbt ended well, but the gate held it"
    files = "\n".join(f"    {file.path}" for file in drop.files)
    waiting = _dates(later)
    return (
        f"The drop {drop} was not published ({how}); readers of main see the state "
        f"before it.{f' Waiting behind it: {waiting}.' if waiting else ''} Its files:\n{files}\n"
        "When it is published (dbt's summary says how), or its files are moved away, go on by: "
        "sparkwap build"
    )


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _dates(later: Sequence[Drop]) -> str:
    shown = ", ".join(str(drop) for drop in later[:_DATES_SHOWN])
    more = len(later) - _DATES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


# ---------------------------------------------------------------- dbt and the lake


# ---------------------------------------------------------------- the command


def register_build(commands: Commands) -> None:
    """``sparkwap build``."""
    text = "build the landing folder into the lake, one gated dbt build per drop, oldest first"
    parser = commands.add_parser(
        "build",
        help=text,
        description=text,
        usage="sparkwap build [argument of dbt build ...]",
        epilog="It stops at the first drop that is not published. The variable landing_until "
        "(--vars) is the last load date to build.",
        # All arguments are dbt's: without a prefix that marks options, none is looked at here.
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)

    def handler(parsed: argparse.Namespace) -> int:
        if {"-h", "--help"} & set(parsed.arguments):
            parser.print_help()
            return 0
        return build(parsed.arguments)

    parser.set_defaults(handler=handler)


def build(arguments: Sequence[str], tell: Callable[[str], None] | None = None) -> int:
    """Build all unread drops; returns dbt's exit code, of the first drop that was not published.

    Args:
        arguments: what ``dbt build`` is to get.
        tell: takes lines of progress; standard error if absent.

    Raises:
        SparkwapError: the landing folder or the project cannot be used.
    """
    tell = tell or say
    call = parse_call(arguments)
    manifest = call.manifest()
    models, lake = raw_models(manifest, call.project_dir), call.lake()
    if not models and (off := switched_off(manifest)):
        raise ConfigError(
            "No raw model is enabled, so there is nothing to read and nothing was built. Switched "
            f"off are the models of: {', '.join(off)}. SOURCES names what to build, by comma."
        )
    until = landing.parse_until(call.variables.get("landing_until"))

    def waiting(tell: Callable[[str], None]) -> list[Drop]:
        return drops(unread_files(models, known_files(lake, models), tell), until)

    found = waiting(tell)
    if not found:
        tell("no unread landing files; one build of what is there")
        return call.run("build", *call.build)
    for number, drop in enumerate(found, start=1):
        tell(f"drop {drop} ({number} of {len(found)}): {_count(drop.files, 'file')}")
        day = drop.load_date
        code = call.run("build", *call.build, **({UNTIL: day.isoformat()} if day else {}))
        left = {file for one in waiting(lambda _: None) for file in one.files}
        if code or left & set(drop.files):
            tell(stopped(drop, found[number:], code))
            return code
    tell(f"{_count(found, 'drop')} published, up to {found[-1]}")
    return 0
