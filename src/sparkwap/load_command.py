"""``sparkwap load``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap import next_command
from sparkwap.build import DbtCall, add_dbt_options, call_of, say
from sparkwap.errors import ConfigError

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.load.audits import Audits
    from sparkwap.load.loading import Loaded, Request

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

STAYS = 2
"""Exit code: the file is on the branch, and is not what was asked for."""

_SHOWN = 5


def register_load(commands: Commands) -> None:
    """``sparkwap load <file> --table schema.table``."""
    text = "a Parquet file behind the gate, without Spark: on a branch, audited, published"
    parser = commands.add_parser(
        "load",
        help=text,
        description=text,
        epilog="It ends with 0 if it did what was asked for, with 2 if the file stays on the "
        "branch against that, and with 1 if nothing was loaded.",
    )
    parser.add_argument("file", type=Path, help="the Parquet file")
    parser.add_argument("--table", required=True, help="schema.table")
    parser.add_argument("--branch", help="the audit branch (default: one by the file's content)")
    parser.add_argument("--publish", action="store_true", help="publish it, if its audits pass")
    parser.add_argument("--create", action="store_true", help="make the table if there is none")
    parser.add_argument("--again", action="store_true", help="although it was loaded before")
    parser.add_argument("--audits", type=Path, help="audits in the form of dbt's schema.yml")
    for option, shape, what in (
        ("not-null", "COLUMN", "audit: it has no NULL"),
        ("unique", "COLUMN", "audit: no value is there twice"),
        ("accepted", "COLUMN=A,B", "audit: it has these values only"),
        ("between", "COLUMN=0..9", "audit: its values are in this range"),
    ):
        parser.add_argument(f"--{option}", action="append", default=[], metavar=shape, help=what)
    parser.add_argument("--max-bytes", type=int, help="the most that its values may take (1 GiB)")
    add_dbt_options(parser)
    parser.set_defaults(handler=_load)


def identifier_of(text: str) -> Identifier:
    """Schema and name of ``--table``.

    Raises:
        ConfigError: It is no such thing.
    """
    schema, dot, name = text.partition(".")
    if not (dot and schema and name) or "." in name:
        raise ConfigError(f"--table is '{text}'; it is schema.table. Nothing was loaded.")
    return schema, name


def told(request: Request, loaded: Loaded) -> list[str]:
    """What to print of a load."""
    drop, branch = request.drop, loaded.branch
    what = f"{drop.path.name} ({drop.rows:,} rows) into {request.name}"
    run = loaded.run_id[:8]
    if loaded.outcome == "already":
        return [f"Already published: {what}, by run {run}. Nothing was done; --again loads it."]
    lines = [_counted(loaded)] if loaded.tallies else []
    if loaded.outcome == "published":
        return [f"Published {what}, run {run}", *lines, *_ways([("undo it", _rollback(run))])]
    lines = [
        f"{loaded.outcome.capitalize()} {what}, on branch {branch}; readers of main see no change",
        *(f"  {reason}" for reason in (*loaded.reasons, *loaded.beside)[:_SHOWN]),
        *lines,
    ]
    operation = f"--args '{{branch: {branch}}}'"
    discard = ("give it up", f"dbt run-operation wap_discard {operation}")
    if loaded.outcome == "rejected":
        again = f"sparkwap load <file> --table {request.name} --branch {branch}"
        return [*lines, *_ways([("load a corrected file", again), discard])]
    ways = [discard]
    if request.audits.beyond():
        source = ".".join(request.audits.node_id.split(".")[2:])
        command = next_command.dbt(f"test --select source:{source}", branch=branch)
        ways.insert(0, ("run the other tests, and publish", command))
    elif not request.publish:
        ways.insert(0, ("publish it", f"dbt run-operation wap_publish {operation}"))
    elif loaded.beside:
        test = next_command.dbt("test", branch=branch)
        ways[:0] = [
            ("see what it waits for", f"dbt run-operation wap_status {operation}"),
            ("audit and publish the branch", test),
        ]
    else:
        ways.insert(0, ("load it on main as it is now", "the same command"))
    return [*lines, *_ways(ways)]


def _counted(loaded: Loaded) -> str:
    clean = sum(not one.failures for one in loaded.tallies)
    return f"  {clean} of {len(loaded.tallies)} audits passed"


def _rollback(run: str) -> str:
    return f"dbt run-operation wap_rollback --args '{{run: {run}}}'"


def _ways(ways: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(purpose) for purpose, _ in ways)
    return [
        f"  {'Next:' if number == 0 else '     '} {purpose:<{width}}   {command}"
        for number, (purpose, command) in enumerate(ways)
    ]


def _load(arguments: argparse.Namespace) -> int:
    return run(arguments, call_of(arguments), say)


def run(arguments: argparse.Namespace, call: DbtCall, tell: Callable[[str], None]) -> int:
    """Do what the command line says; returns the exit code.

    Raises:
        SparkwapError: Nothing was loaded.
    """
    # Here, as they bring PyArrow along: half a second that other commands do not need.
    from sparkwap.catalog import Lake
    from sparkwap.load import DEFAULT_LIMIT, Request, load, open_drop
    from sparkwap.settings import GateSettings

    table = identifier_of(arguments.table)
    drop = open_drop(arguments.file, arguments.max_bytes or DEFAULT_LIMIT)
    ours = {key: value for key, value in call.variables.items() if key.startswith("wap_")}
    settings = GateSettings.from_vars(ours)
    manifest = call.manifest()
    audits = _audits(arguments, manifest, table)
    place = call.lake()
    if place.open() is None:
        raise ConfigError(
            f"There is no lake at {place.properties['uri']}. Nothing was loaded. It is laid out "
            "when its server starts: sparkwap server start"
        )
    lake = Lake(place.name, place.properties)
    try:
        request = Request(
            table,
            drop,
            audits,
            publish=arguments.publish,
            branch=arguments.branch,
            create=arguments.create,
            again=arguments.again,
            project=str(manifest["metadata"].get("project_name") or ""),
            target_name=call.target or "",
            settings=settings,
        )
        loaded = load(lake, request, tell)
    finally:
        lake.close()
    print("\n".join(told(request, loaded)))
    wanted = ("published", "already") if arguments.publish else ("published", "already", "held")
    return 0 if loaded.outcome in wanted else STAYS


def _audits(
    arguments: argparse.Namespace, manifest: Mapping[str, Any], table: Identifier
) -> Audits:
    from sparkwap.load import from_arguments, from_manifest, from_yaml

    found = from_manifest(manifest, table)
    if arguments.audits is not None:
        if not arguments.audits.is_file():
            raise ConfigError(f"There is no file {arguments.audits}. Nothing was loaded.")
        found = found.also(from_yaml(arguments.audits.read_text(), table))
    return found.also(
        from_arguments(
            table, arguments.not_null, arguments.unique, arguments.accepted, arguments.between
        )
    )
