"""``sparkwap source add``: from a source's files to the models of a new source table.

Writes the landing entry and the raw model, the quarantine model, the latest state (`cdc_`) and a
first staging model, each with its YAML; with ``--history`` a history as well. Nothing that is there
is overwritten.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sparkwap.core.dbt_cli import find_project
from sparkwap.core.errors import ConfigError
from sparkwap.landing import KINDS, parse_entry
from sparkwap.landing.guessing import Answers, Guess, guess, read_samples

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
_HISTORY = """\
{{{{ config(materialized='scd2', unique_key={key}) }}}}

{{{{ change_events(ref('raw_{name}'), columns={{
{columns}
}}) }}}}
"""
_DELETED = "_is_deleted"
_MAX_DROP = {"arguments": {"max_drop": 0.2}}
_DEFAULTS = """\
models:
  {project}:
    raw:
      +incremental_strategy: append
      +on_schema_change: append_new_columns
      +full_refresh: false
      +partition_by: [_kind, _load_date]
      +meta:
        drop:
          root: landing
          until: "{{{{ var('landing_until', '') | string | as_text }}}}"
          replay: "{{{{ var('landing_replay', '') | string | as_text }}}}"
    quarantine:
      +materialized: table
    staging:
      +materialized: table
      +incremental_strategy: merge
      +on_schema_change: append_new_columns"""


def register_source(commands: Commands) -> None:
    """``sparkwap source add``."""
    text = "source tables of the project"
    source = commands.add_parser("source", help=text, description=text)
    actions = source.add_subparsers(title="actions", metavar="action", required=True)
    what = "write the landing entry and the models of a new source table, from its files"
    add = actions.add_parser("add", help=what, description=what)
    add.add_argument(
        "sample", type=Path, nargs="+",
        help="files as the source delivers them, or their folder; of one file the others of its "
        "table are looked at, too",
    )  # fmt: skip
    add.add_argument("--source", required=True, help="name of the source, such as crm")
    add.add_argument("--entity", required=True, help="name of the table, such as customers")
    add.add_argument("--key", default="", help="key columns, by comma (default: a guess)")
    add.add_argument("--kind", choices=KINDS, help="what a file is (default: a guess)")
    add.add_argument("--operation", help="column with the operation codes (default: a guess)")
    add.add_argument("--full", metavar="PATTERN", help="names of full loads (default: a guess)")
    add.add_argument(
        "--history", action="store_true",
        help="write a history, too: a snapshot of extracts, an scd2 model of changes",
    )  # fmt: skip
    add.add_argument("--project-dir", type=Path, help="as for dbt")
    add.set_defaults(handler=_add)


# ---------------------------------------------------------------- what is written


def files(source: str, entity: str, found: Guess, history: bool = False) -> dict[str, str]:
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
    extract = found.entry["kind"] == "extract"
    wanted = {
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
            [_state_yaml(name, key), _staging_yaml(name, key, extract)]
        ),
    }
    if history and extract:
        wanted[f"snapshots/{source}/snp_{name}.yml"] = _yaml(
            [_snapshot_yaml(name, key)], "snapshots"
        )
    elif history:
        plain = [_plain(k) for k in key]
        wanted[f"models/history/{source}/hst_{name}.sql"] = _HISTORY.format(
            name=name, key=plain, columns=_events(columns)
        )
        wanted[f"models/history/{source}/_{name}__models.yml"] = _yaml([_history_yaml(name, plain)])
    return wanted


def _events(columns: Mapping[str, str]) -> str:
    sql = {name: f"`{name}`".replace("'", "\\'") for name in columns}
    return "\n".join(
        f"    '{_plain(name)}': '{sql[name]}'," if kind == "string"
        else f"    '{_plain(name)}': 'cast({sql[name]} as {kind})',"
        for name, kind in columns.items()
    )  # fmt: skip


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
        "data_tests": ["quarantine_below", "files_add_up", {"full_load_drop": _MAX_DROP}],
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


def _staging_yaml(name: str, key: list[str], extract: bool) -> dict[str, Any]:
    drop: list[Any] = [{"row_count_drop": _MAX_DROP}] if extract else []
    tests = ["not_null", "unique"] if len(key) == 1 else ["not_null"]
    return {
        "name": f"stg_{name}",
        "description": f"One row for each {' and '.join(map(_plain, key))}, typed.",
        "data_tests": ["not_empty", *drop],
        "columns": [{"name": _plain(k), "data_tests": tests} for k in key],
    }


def _snapshot_yaml(name: str, key: list[str]) -> dict[str, Any]:
    plain = [_plain(k) for k in key]
    by_key = {"arguments": {"key": plain}}
    return {
        "name": f"snp_{name}",
        "description": "History by load date; a delete closes a version and adds no row.",
        "relation": f"ref('stg_{name}')",
        "config": {
            "unique_key": plain[0] if len(plain) == 1 else plain,
            "strategy": "check",
            "check_cols": ["row_hash"],
            "updated_at": "loaded_at",
            "hard_deletes": "invalidate",
            "hard_deletes_at": "max(as_of)",
        },
        "data_tests": [
            "not_empty", {"scd2_one_current": by_key}, {"scd2_no_overlap": by_key}, "scd2_in_order",
        ],
    }  # fmt: skip


def _history_yaml(name: str, key: list[str]) -> dict[str, Any]:
    times = {"valid_from": "valid_from", "valid_to": "valid_to"}
    one = {"key": key, "valid_to": "valid_to"}
    return {
        "name": f"hst_{name}",
        "description": f"Every version of each {' and '.join(key)}.",
        "data_tests": [
            "not_empty",
            {"scd2_one_current": {"arguments": one}},
            {"scd2_no_overlap": {"arguments": {"key": key, **times}}},
            {"scd2_in_order": {"arguments": times}},
        ],
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors, lists indented as dbt's documentation has them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(models: list[dict[str, Any]], what: str = "models") -> str:
    return yaml.dump({what: models}, Dumper=_Plain, sort_keys=False, allow_unicode=True,
                     width=100)  # fmt: skip


# ---------------------------------------------------------------- what the project has


@dataclass(frozen=True)
class _Place:
    """Where the files of a table land: the landing folder as written, and a folder below it."""

    root: str
    path: str


def _place(project: Path, source: str, entity: str, samples: Sequence[Path]) -> _Place:
    """Where a build will look for the files.

    That is where the samples are, if they are in the landing folder; else a folder of the entity's
    name, below one of the source's if another raw model reads that.

    Raises:
        ConfigError: the project names no landing folder; another raw model reads the files.
    """
    described = yaml.safe_load((project / "dbt_project.yml").read_text()) or {}
    name = str(described.get("name"))
    written = _root(described.get("models") or {}, [name, "raw", source])
    if written is None:
        raise ConfigError(
            f"{project / 'dbt_project.yml'} names no landing folder for models/raw, which a build "
            "will need. Nothing was written. Add it, with the defaults of the layers (docs/"
            f"landing.md), then call this again:\n{_DEFAULTS.format(project=name)}"
        )
    taken = dict(_taken(project))
    landed = _below((project / _rendered(written)).resolve(), samples)
    if landed is not None and landed in taken:
        raise ConfigError(
            f"{taken[landed]} reads the folder '{landed}' of the landing folder. Nothing was "
            "written. Two raw models of one folder would read each file twice."
        )
    free = entity if entity not in taken else f"{source}/{entity}"
    return _Place(written, landed or free)


def _root(level: Any, steps: Sequence[str]) -> str | None:
    """``drop.root`` of the most specific folder of models that has one."""
    if not isinstance(level, Mapping):
        return None
    inner = _root(level.get(steps[0]), steps[1:]) if steps else None
    meta = level.get("+meta") or level.get("meta")
    drop = meta.get("drop") if isinstance(meta, Mapping) else None
    root = drop.get("root") if isinstance(drop, Mapping) else None
    return inner or (str(root) if root else None)


def _rendered(text: str) -> str:
    """The folder that a setting names, as far as only the environment tells."""
    import jinja2

    def env_var(name: str, default: str = "") -> str:
        return os.environ.get(name, default)

    try:
        return jinja2.Environment().from_string(text).render(env_var=env_var)
    except jinja2.TemplateError:
        return text


def _below(root: Path, samples: Sequence[Path]) -> str | None:
    """The folder of the samples below the landing folder; None if they are elsewhere."""
    folders = {(p if p.is_dir() else p.parent).resolve() for p in samples}
    found = {f.parent if f.name.startswith("load_date=") else f for f in folders}
    (one, *others) = found
    return None if others or root not in one.parents else one.relative_to(root).as_posix()


def _taken(project: Path) -> Iterable[tuple[str, str]]:
    """The folders that raw models of the project read, and which model reads each."""
    for path in sorted((project / "models").rglob("*.y*ml")):
        try:
            models = (yaml.safe_load(path.read_text()) or {}).get("models") or []
            for model in models:
                entry = ((model.get("config") or {}).get("meta") or {}).get("landing") or {}
                folder = str(entry.get("path") or entry.get("entity") or "").strip("/")
                if folder:
                    yield folder, str(model.get("name"))
        except (yaml.YAMLError, OSError, AttributeError, TypeError):
            continue  # dbt will say what is wrong with it


# ---------------------------------------------------------------- the command


def add(
    samples: Sequence[Path],
    source: str,
    entity: str,
    answers: Answers,
    project: Path,
    history: bool = False,
) -> list[str]:
    """Write the files of a new source table; returns what to tell.

    Raises:
        ConfigError: one of the files is there already, the folder is no project or lacks what a
            build will need, a name is bad.
        LandingError: the samples cannot be used, or allow two readings.
    """
    if not (project / "dbt_project.yml").is_file():
        raise ConfigError(
            f"{project.resolve()} is no dbt project. Nothing was written. Say --project-dir."
        )
    place = _place(project, source, entity, samples)
    found = guess(read_samples(samples), entity, answers)
    if place.path != entity:
        found.entry["path"] = place.path
    wanted = files(source, entity, found, history)
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
    ends = [f"stg_{name}", f"quarantine_{name}"]
    ends += [one for path in wanted if (one := Path(path).stem).startswith(("snp_", "hst_"))]
    return [
        "Wrote",
        *(f"  {path}" for path in wanted),
        "Assumed",
        *(f"  {line}" for line in found.assumed),
        "Next",
        f"  look at the entry    models/raw/{source}/_{name}__models.yml",
        f"  deliver files        {place.root}/{place.path}/load_date=YYYY-MM-DD/",
        f"  build it             dbt build --select {' '.join(f'+{one}' for one in ends)}",
    ]


def _add(arguments: argparse.Namespace) -> int:
    key = tuple(k.strip() for k in arguments.key.split(",") if k.strip())
    answers = Answers(key, arguments.kind, arguments.operation, arguments.full)
    lines = add(
        arguments.sample, arguments.source, arguments.entity, answers,
        find_project(arguments.project_dir), arguments.history,
    )  # fmt: skip
    print("\n".join(lines))
    return 0
