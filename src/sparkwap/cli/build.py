"""``sparkwap build``: load the landing folder into the lake, with one gated build per drop.

A drop is all landing files of one load date. Each drop is read, built, audited and published
before the next drop, so a history has every state, and a bad drop stops only the drops after it.
The list of the read files comes from the raw tables (see `sparkwap.landing`), through the catalog,
without Spark.

Nothing is built if no file is unread and a build would publish the existing state again.
`build_reasons` decides this; in doubt, there is a build.

dbt runs as a program: once to list the raw models, and once for each drop. The landing folder is
listed once; all builds use this listing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from sparkwap import landing
from sparkwap.cli.build_reasons import asks_again, asks_for_more, why_build
from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd, Outcome
from sparkwap.core.dbt_cli import DbtCall, DbtEnd, add_dbt_command, parse_call, say
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import counted, some_of
from sparkwap.landing import LandingError, LandingFile
from sparkwap.landing.entry import UNTIL
from sparkwap.landing.index import LISTING
from sparkwap.landing.raw_models import (
    RawModel,
    known_files,
    raw_models,
    switched_off,
    unread_files,
    unread_topics,
)  # fmt: skip
from sparkwap.plan import render
from sparkwap.plan.command import plan_of, selection
from sparkwap.runs import replay_moment
from sparkwap.runs.results import RunResults

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

_LONGEST_SELECTION = 500_000
_EAGER = ["--indirect-selection", "eager"]
"""All tests that read a built node must run, whatever the project's default is."""
AGAIN, STALE = "--again", "--stale"


class Unread(NamedTuple):
    """An unread landing file, and the raw table that lacks it, by schema and name."""

    table: tuple[str, str]
    file: LandingFile


@dataclass(frozen=True)
class Drop:
    """The unread files of one load date; None for files whose date comes from their events."""

    load_date: date | None
    files: tuple[Unread, ...]

    def __str__(self) -> str:
        return str(self.load_date or "without a date")


@dataclass(frozen=True)
class Built:
    """One gated dbt build of ``sparkwap build``.

    Attributes:
        outcome: Its outcome.
        load_date: The load date of its drop; None for files without a date, and for a build without
            unread files.
        files: The names of the drop's files.
        run: What the gate decided; None if dbt ended before.
    """

    outcome: Outcome
    load_date: date | None
    files: tuple[str, ...]
    run: RunResults | None


@dataclass(frozen=True)
class BuildResult:
    """What ``sparkwap build`` has done.

    Attributes:
        builds: The builds, in their order; empty if there was nothing to build.
        waiting: The load dates of the drops that were not built, because an earlier one was not
            published, or that have files that the selected nodes do not read.
        faults: Files and topics that could not be read.
    """

    builds: tuple[Built, ...] = ()
    waiting: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


# ---------------------------------------------------------------- decisions


def drops(unread: Iterable[Unread], until: date | None = None) -> list[Drop]:
    """Return the unread files by load date, oldest first, up to ``until``.

    Files without a date belong to the first drop, because the next run reads them.
    """
    by_date: dict[date, list[Unread]] = {}
    dateless = []
    for one in unread:
        if one.file.load_date is None:
            dateless.append(one)
        elif until is None or one.file.load_date <= until:
            by_date.setdefault(one.file.load_date, []).append(one)
    found = [Drop(day, tuple(by_date[day])) for day in sorted(by_date)]
    if not dateless:
        return found
    first, *others = found or [Drop(None, ())]
    return [Drop(first.load_date, (*dateless, *first.files)), *others]


def list_unread(
    models: Sequence[RawModel],
    known: Mapping[tuple[str, str], Mapping[str, str]],
    target_folder: Path,
    listing_id: str,
) -> tuple[list[Unread], list[str]]:
    """Return the unread landing files, and the faults of other files.

    If the files of a model have a fault, the model's own build fails with the same message.

    Args:
        known: the files that were read; see `known_files`.
        target_folder: the folder with the indexes of the landing files.
        listing_id: the id of this listing, for the builds of the drops.

    Raises:
        LandingError: the files of every model have a fault; this is the first fault.
    """
    unread, faults = list[Unread](), list[LandingError]()
    for model in models:
        try:
            files = unread_files(model, known, target_folder, listing_id)
            unread += [Unread(model.table, file) for file in files]
        except LandingError as error:
            faults.append(error)
    if faults and len(faults) == len(models):
        raise faults[0]
    return unread, [str(fault) for fault in faults]


def messages_listed(counts: Mapping[str, int]) -> str:
    """Return the numbers of unread messages, by raw model, as one text."""
    return ", ".join(
        f"{name} has {counted(count, 'unread message')}" for name, count in counts.items()
    )


def _left(drop: Drop, published: Mapping[tuple[str, str], Collection[str]]) -> list[Unread]:
    """Return the files of a drop that still exist and are not published."""
    return [
        one
        for one in drop.files
        if one.file.name not in published.get(one.table, ()) and one.file.path.exists()
    ]


def stopped(drop: Drop, later: Sequence[Drop], code: int) -> str:
    """Return the message for a drop that was not published; ``code`` is dbt's exit code."""
    how = f"dbt ended with code {code}" if code else "dbt succeeded, but the gate held it"
    files = "\n".join(f"    {one.file.path}" for one in drop.files)
    waiting = some_of([*map(str, later)])
    return (
        f"The drop {drop} was not published as a whole ({how}). The output of dbt above has the "
        f"reason, and what is published.{f' Waiting: {waiting}.' if waiting else ''} Its files:\n"
        f"{files}\nPublish it by the commands above, correct the cause, or move its files away; "
        f"then: {next_command.sparkwap('build')}"
    )


def unselected(left: Sequence[Drop]) -> str:
    """Return the message for drops with files that the selected nodes do not read."""
    return (
        "the selected nodes are built, and do not read all files of the drops "
        f"{some_of([*map(str, left)])}. To read them: {next_command.sparkwap('build')}, without a "
        "selection"
    )


def selects(arguments: Sequence[str]) -> bool:
    """Return whether arguments of ``dbt build`` select nodes."""
    options = ("-s", "-m", "--select", "--models", "--model", "--exclude", "--selector")
    return any(
        argument.partition("=")[0] in options or re.match(r"-[sm]\w", argument)
        for argument in arguments
    )


# ---------------------------------------------------------------- the command


def register_build(commands: Commands) -> None:
    """Register ``sparkwap build``."""
    text = "load the landing folder into the lake, with one gated dbt build per drop, oldest first"
    add_dbt_command(
        commands,
        "build",
        text,
        "--again | --stale",
        "It stops at the first drop that is not published. The variable landing_until (--vars) is "
        "the last load date to build. If no file and no message is unread and today's last publish "
        "has the same code, nothing is built; with --again, or with an argument for dbt, "
        "everything is built again. With --stale, only what `sparkwap plan` shows under "
        "`To build` is built.",
        lambda parsed: build(parsed.arguments),
    )


def build(arguments: Sequence[str], tell: Callable[[str], None] = say) -> CommandEnd:
    """Build all unread drops, up to the first one that is not published.

    Args:
        arguments: the arguments of ``dbt build``; ``--again`` to build in any case, or
            ``--stale`` to build only what is stale.

    Raises:
        SparkwapError: the landing folder or the project cannot be used.
    """
    call = parse_call([argument for argument in arguments if argument not in (AGAIN, STALE)])
    replay_moment.refuse(call.variables, "sparkwap build")
    manifest = call.manifest()
    select = _stale(arguments, call, manifest, tell) if STALE in arguments else []
    if select is None:
        return CommandEnd(result=BuildResult())
    models, lake = raw_models(manifest, call.project_dir), call.lake()
    if not models and (off := switched_off(manifest)):
        raise ConfigError(
            "No raw model is enabled, so there is nothing to read. Nothing was built. Enable a "
            f"model (`enabled`) of: {', '.join(off)}."
        )
    until = landing.parse_until(call.variables.get("landing_until"))
    listing_id = uuid4().hex
    of_files = [model for model in models if not model.entry.topic]
    unread, faults = list_unread(
        of_files,
        known_files(lake, of_files),
        call.project_dir / call.target_path,
        listing_id,
    )
    waiting, unreachable = unread_topics(lake, models)
    faults += unreachable
    for fault in faults:
        tell(fault)

    def run(**environment: str) -> DbtEnd:
        given = {LISTING: listing_id, **environment}
        return call.run("build", *call.build, *select, **given)

    found = drops(unread, until)
    if not found:
        if waiting:
            why: str | None = messages_listed(waiting)
        elif faults:
            why = "what is above cannot be read, and the errors of the build show it"
        elif "--select" in select:
            why = "only what is stale"
        elif select or AGAIN in arguments or asks_for_more(call, os.environ):
            why = "as requested"
        else:
            why = why_build(call, lake, manifest)
        if why is None:
            tell(
                "no unread landing files, and the last publish is of today and has this code: "
                f"nothing to build (to build anyway: {next_command.sparkwap(f'build {AGAIN}')})"
            )
            return CommandEnd(result=BuildResult(faults=tuple(faults)))
        tell(f"no unread landing files; one build: {why}")
        end = run()
        return _ended([_built(end, None)], end.message, faults)
    chosen = selects(call.build)
    return _build_drops(
        found, run, lambda names: known_files(lake, models, names), faults, tell, chosen
    )


def _build_drops(
    found: Sequence[Drop],
    run: Callable[..., DbtEnd],
    published: Callable[[Sequence[str]], Mapping[tuple[str, str], Collection[str]]],
    faults: Sequence[str],
    tell: Callable[[str], None],
    chosen: bool = False,
) -> CommandEnd:
    """Build drops in their order, up to the first one that is not published.

    Args:
        run: builds what is unread, with more environment variables.
        published: returns which of some files each table has.
        chosen: whether the arguments of dbt select nodes, perhaps not those that read the files.
    """
    builds, left, unread = list[Built](), list[Drop](), set[tuple[str, str]]()
    message = told = None
    with TemporaryDirectory(prefix="sparkwap-") as folder:
        steps = Path(folder) / "next"
        for number, drop in enumerate(found, start=1):
            if unread.issuperset(one.table for one in drop.files):
                left.append(drop)
                continue
            tell(f"drop {drop} ({number} of {len(found)}): {counted(len(drop.files), 'file')}")
            day = {UNTIL: drop.load_date.isoformat()} if drop.load_date else {}
            # A later drop continues with the tables that this one leaves held, and its summary has
            # their next commands; so they are shown only where the build stops.
            later = {next_command.VARIABLE: str(steps)} if number < len(found) else {}
            steps.unlink(missing_ok=True)
            end = run(**day, **later)
            built = _built(end, drop)
            builds.append(built)
            succeeded = built.outcome in ("done", "published")
            files = _left(drop, published(built.files))
            if chosen and succeeded and not end.code and files:
                left.append(drop)
                unread |= {one.table for one in files}
            elif end.code or files:
                if succeeded:
                    builds[-1] = replace(built, outcome="held")
                left += found[number:]
                told, message = stopped(drop, found[number:], end.code), end.message
                break
        print(steps.read_text() if steps.exists() else "", end="", flush=True)
    count = counted(len(found), "drop")
    if told is None and left:
        told = unselected(left)
    elif told is None and builds[-1].outcome == "held":
        told = f"{count} read, up to {found[-1]}; the last build has left held tables"
    tell(told or f"{count} published, up to {found[-1]}")
    return _ended(builds, message, faults, left)


def _stale(
    arguments: Sequence[str],
    call: DbtCall,
    manifest: Mapping[str, Any],
    tell: Callable[[str], None],
) -> list[str] | None:
    """Return the arguments of dbt that select what is stale, or everything; None if nothing is."""
    if AGAIN in arguments:
        raise ConfigError(f"{STALE} and {AGAIN} exclude each other. Nothing was built.")
    if selects(call.build):
        raise ConfigError(
            f"{STALE} selects the nodes itself, so it takes no --select or --exclude. Nothing "
            "was built. Leave out one of them."
        )
    if why := asks_again(call, os.environ):
        tell(f"{STALE}: everything is built ({why})")
        return _EAGER
    stale = plan_of(call, manifest)
    tell(render.text(stale)[0])
    if not stale.stale:
        return None
    chosen = selection(stale, manifest)
    if sum(map(len, chosen)) > _LONGEST_SELECTION:
        tell(f"{STALE}: everything is built (more is stale than a command line can name)")
        return _EAGER
    return ["--select", *chosen, *_EAGER]


def _built(end: DbtEnd, drop: Drop | None) -> Built:
    files = tuple(one.file.name for one in drop.files) if drop else ()
    return Built(end.outcome, drop.load_date if drop else None, files, end.result)


def _ended(
    builds: Sequence[Built],
    message: str | None,
    faults: Sequence[str],
    waiting: Sequence[Drop] = (),
) -> CommandEnd:
    """Return the end of the command, which is that of its last build."""
    result = BuildResult(tuple(builds), tuple(map(str, waiting)), tuple(faults))
    return CommandEnd(builds[-1].outcome, result, message)
