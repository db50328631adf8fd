"""``sparkwap source add``: from a source's files to the models of a new source table.

Writes the landing entry and the raw model, the quarantine model, the latest state (`cdc_`) and a
first staging model, each with its YAML; with ``--history`` a history as well. Nothing that is there
is overwritten.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sparkwap.cli.source_models import files
from sparkwap.core.dbt_cli import find_project
from sparkwap.core.errors import ConfigError
from sparkwap.landing import KINDS
from sparkwap.landing.files import DROP_PREFIX
from sparkwap.landing.guessing import SourceAnswers, guess
from sparkwap.landing.samples import read_samples

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


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
    found = {f.parent if f.name.startswith(DROP_PREFIX) else f for f in folders}
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
    answers: SourceAnswers,
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
    answers = SourceAnswers(key, arguments.kind, arguments.operation, arguments.full)
    lines = add(
        arguments.sample, arguments.source, arguments.entity, answers,
        find_project(arguments.project_dir), arguments.history,
    )  # fmt: skip
    print("\n".join(lines))
    return 0
