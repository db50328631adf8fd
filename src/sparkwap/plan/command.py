"""``sparkwap plan``, and the selection of ``sparkwap build --stale``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of
from sparkwap.landing.raw_models import unread
from sparkwap.plan import render

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands
    from sparkwap.plan.decide import Plan


def register_plan(commands: Commands) -> None:
    """Register ``sparkwap plan``."""
    text = "show what a build would do and why, node by node, without Spark"
    parser = commands.add_parser(
        "plan",
        help=text,
        description=text,
        epilog="A node is reused if its code and all that it reads are as they were when its live "
        "table was built. What is not known counts as changed. Build the others with: sparkwap "
        "build --stale",
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=_plan, formats=("text", "json", "markdown"))


def _plan(parsed: argparse.Namespace) -> CommandEnd:
    call = call_of(parsed)
    found = plan_of(call, call.manifest("sparkwap plan"))
    as_markdown = parsed.output == "markdown"
    print(*(render.markdown(found) if as_markdown else render.text(found)), sep="\n")
    return CommandEnd(result=render.document(found))


def plan_of(call: DbtCall, manifest: Mapping[str, Any]) -> Plan:
    """Return the plan of a build of a project on its lake.

    Raises:
        SparkwapError: A landing entry is invalid, or the lake cannot be read.
    """
    # Imported here, because it imports PyIceberg, which `--help` does not need, as well as dbt.
    from dbt.config.project import load_raw_project

    from sparkwap.plan.gather import Gatherer
    from sparkwap.publish.lake import Lake

    place = call.lake()
    lake = Lake(place.name, place.properties) if place.exists else None
    target = call.project_dir / call.target_path
    files = unread(place, manifest, call.project_dir, target)
    dispatch = load_raw_project(str(call.project_dir)).get("dispatch") or ()
    return Gatherer(manifest, lake, files, place.session, dispatch).plan()


def selection(plan: Plan, manifest: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``--select`` for what is stale."""
    nodes = manifest["nodes"]
    names = {key: ".".join(node["fqn"]) for key, node in nodes.items()}
    folders = {
        ".".join(node["fqn"][:end]) for node in nodes.values() for end in range(len(node["fqn"]))
    }
    found = []
    for key in plan.stale:
        # The path alone also selects what is in a folder of the same name.
        file = PurePath(nodes[key]["original_file_path"]).name if names[key] in folders else None
        found.append(_literal(f"fqn:{names[key]}") + (f",file:{_literal(file)}" if file else ""))
    return found


def _literal(text: str) -> str:
    """Return a criterion for dbt without the characters that have a meaning for it."""
    return re.sub(r"[^\w.:\-]", "?", text)
