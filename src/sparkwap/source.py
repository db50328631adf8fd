"""``sparkwap source add``: from a sample file to the models of a new source table.

Writes the landing entry and the raw model, the quarantine model, the latest state (`cdc_`) and a
first staging model, each with its YAML. Nothing that is there is overwritten.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sparkwap.errors import ConfigError
from sparkwap.landing import parse_entry
from sparkwap.landing.guessing import Guess, guess, read_sample

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RAW = """\
from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    return landing.model(dbt, session)
"""
_STATE = """\
from sparkwap import cdc


def model(dbt, session):
    dbt.config(materialized="incremental")
    return cdc.model(dbt, session, dbt.ref("raw_{name}"))
"""
_STAGING = """\
with latest as (

    select * from {{{{ ref('cdc_{name}') }}}}
    where not {deleted}

),

final as (

    select
        {{{{ typed_columns({{
{columns}
        }}) }}}},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{{{ landed_up_to(ref('raw_{name}')) }}}} as as_of
    from latest

)

select * from final
"""
_DELETED = "_is_deleted"


def register_source(commands: Commands) -> None:
    """``sparkwap source add``."""
    text = "source tables of the project"
    source = commands.add_parser("source", help=text, description=text)
    actions = source.add_subparsers(title="actions", metavar="action", required=True)
    what = "write the landing entry and the models of a new source table, from a sample file"
    add = actions.add_parser("add", help=what, description=what)
    add.add_argument("sample", type=Path, help="a file as the source delivers it")
    add.add_argument("--source", required=True, help="name of the source, such as crm")
    add.add_argument("--entity", required=True, help="name of the table, such as customers")
    add.add_argument("--key", default="", help="key columns, by comma (default: a guess)")
    add.add_argument("--project-dir", type=Path, default=Path(), help="default: here")
    add.set_defaults(handler=_add)


# ---------------------------------------------------------------- what is written


def files(source: str, entity: str, found: Guess) -> dict[str, str]:
    """The files of a new source table, by their paths in the project.

    Raises:
        ConfigError: a name is not one that a table can have.
    """
    for what, given in (("source", source), ("entity", entity)):
        if not _NAME.fullmatch(given):
            raise ConfigError(
                f"--{what} is '{given}'. Nothing was written. It is a lower-case letter, then "
                "lower-case letters, digits and underscores."
            )
    parse_entry(found.entry)
    name = f"{source}__{entity}"
    key, columns = found.entry["key"], found.entry["columns"]
    return {
        f"models/raw/{source}/raw_{name}.py": _RAW,
        f"models/raw/{source}/_{name}__models.yml": _yaml([_raw_yaml(name, found.entry)]),
        f"models/quarantine/{source}/quarantine_{name}.sql": (
            f"{{{{ quarantine(ref('raw_{name}')) }}}}\n"
        ),
        f"models/quarantine/{source}/_{name}__models.yml": _yaml([_quarantine_yaml(name)]),
        f"models/staging/{source}/cdc_{name}.py": _STATE.format(name=name),
        f"models/staging/{source}/stg_{name}.sql": _STAGING.format(
            name=name, columns=_typed(columns), deleted=_DELETED
        ),
        f"models/staging/{source}/_{name}__models.yml": _yaml(
            [_state_yaml(name, key), _staging_yaml(name, key)]
        ),
    }


def _typed(columns: Mapping[str, str]) -> str:
    return "\n".join(
        f"            {name!r}: '{kind}{_renamed(name)}'," for name, kind in columns.items()
    )


def _renamed(name: str) -> str:
    """`` as <name>`` for a column whose name would have to be quoted for ever."""
    return "" if _PLAIN.fullmatch(name) else f" as {_plain(name)}"


def _plain(name: str) -> str:
    """A column's name as staging has it: ``GICS Sector`` -> ``gics_sector``."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
    return plain if _PLAIN.fullmatch(plain) else f"column_{plain}"


def _raw_yaml(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"raw_{name}",
        "description": f"Change log of {name.replace('__', ' ')}, append-only; and the list of the "
        "landing files read.",
        "config": {"meta": {"landing": dict(entry)}},
        "data_tests": ["quarantine_below", "files_add_up"],
    }


def _quarantine_yaml(name: str) -> dict[str, Any]:
    refs = {"raw": f"ref('raw_{name}')", "state": f"ref('cdc_{name}')"}
    return {
        "name": f"quarantine_{name}",
        "description": "Rows of the landing files that cannot be used, with the reason.",
        "data_tests": [{"rows_add_up": {"arguments": refs}}],
    }


def _state_yaml(name: str, key: list[str]) -> dict[str, Any]:
    return {
        "name": f"cdc_{name}",
        "description": "The latest state of each key, as text, deleted keys included.",
        "config": {"unique_key": key},
    }


def _staging_yaml(name: str, key: list[str]) -> dict[str, Any]:
    tests = ["not_null", "unique"] if len(key) == 1 else ["not_null"]
    return {
        "name": f"stg_{name}",
        "description": f"One row for each {' and '.join(map(_plain, key))}, typed.",
        "data_tests": ["not_empty"],
        "columns": [{"name": _plain(k), "data_tests": tests} for k in key],
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors, lists indented as dbt's documentation has them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(models: list[dict[str, Any]]) -> str:
    return yaml.dump({"models": models}, Dumper=_Plain, sort_keys=False, allow_unicode=True,
                     width=100)  # fmt: skip


# ---------------------------------------------------------------- the command


def add(sample: Path, source: str, entity: str, key: list[str], project: Path) -> list[str]:
    """Write the files of a new source table; returns what to tell.

    Raises:
        ConfigError: one of the files is there already, the folder is no project, a name is bad.
        LandingError: the sample cannot be used.
    """
    if not (project / "dbt_project.yml").is_file():
        raise ConfigError(
            f"{project.resolve()} is no dbt project. Nothing was written. Say --project-dir."
        )
    found = guess(read_sample(sample), entity, key)
    wanted = files(source, entity, found)
    there = [path for path in wanted if (project / path).exists()]
    if there:
        raise ConfigError(
            f"{', '.join(there)}: there already. Nothing was written. Delete them to begin anew, "
            "or choose another --entity."
        )
    for path, text in wanted.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    name = f"{source}__{entity}"
    return [
        "Wrote",
        *(f"  {path}" for path in wanted),
        "Assumed",
        *(f"  {line}" for line in found.assumed),
        "Next",
        f"  look at the entry    models/raw/{source}/_{name}__models.yml",
        f"  deliver files        $LANDING/{entity}/load_date=YYYY-MM-DD/{sample.name}",
        f"  build it             dbt build --select +stg_{name} +quarantine_{name}",
    ]


def _add(arguments: argparse.Namespace) -> int:
    key = [k.strip() for k in arguments.key.split(",") if k.strip()]
    lines = add(arguments.sample, arguments.source, arguments.entity, key, arguments.project_dir)
    print("\n".join(lines))
    return 0
