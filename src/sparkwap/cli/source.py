"""``sparkwap source add``: generate the models of a new source table from its files.

The command writes the landing entry, the raw model, the quarantine model, the latest state
(`cdc_`) and a first staging model, each with its YAML, and with ``--history`` a history. It
overwrites no file.
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
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import find_project
from sparkwap.core.errors import ConfigError
from sparkwap.landing.guessing import SourceAnswers, guess
from sparkwap.landing.landing_files import DROP_PREFIX
from sparkwap.landing.samples import read_samples

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

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
    """Register ``sparkwap source add``."""
    text = "source tables of the project"
    source = commands.add_parser("source", help=text, description=text)
    actions = source.add_subparsers(title="actions", metavar="action", required=True)
    text = "write the landing entry and the models of a new source table, from its files"
    add = actions.add_parser("add", help=text, description=text)
    add.add_argument(
        "sample", type=Path, nargs="+",
        help="files from the source, or their folder; for a single file, the other files of its "
        "table are read too",
    )  # fmt: skip
    add.add_argument("--source", required=True, help="name of the source, such as crm")
    add.add_argument("--entity", required=True, help="name of the table, such as customers")
    add.add_argument(
        "--key", default="", help="key columns, separated by commas (default: a guess)"
    )
    kinds = ("extract", "changes")
    add.add_argument("--kind", choices=kinds, help="content of the drops (default: a guess)")
    add.add_argument("--operation", help="column with the operation codes (default: a guess)")
    add.add_argument("--full", metavar="PATTERN", help="names of full loads (default: a guess)")
    add.add_argument(
        "--history", action="store_true",
        help="also write a history: a snapshot of extracts, or an scd2 model of changes",
    )  # fmt: skip
    add.add_argument("--project-dir", type=Path, help="as for dbt")
    add.set_defaults(handler=_add)


# ---------------------------------------------------------------- the project


@dataclass(frozen=True)
class _Place:
    """The place of a table's files: the landing folder as configured, and a folder below it."""

    root: str
    path: str


def _place(project: Path, source: str, entity: str, samples: Sequence[Path]) -> _Place:
    """Return the place from which a build will read the files.

    This is the samples' folder if it is in the landing folder; else a folder with the entity's
    name, below the source's folder if another raw model already reads this name.

    Raises:
        ConfigError: the project has no landing folder, or another raw model reads the files.
    """
    described = yaml.safe_load((project / "dbt_project.yml").read_text()) or {}
    name = str(described.get("name"))
    written = _root(described.get("models") or {}, [name, "raw", source])
    if written is None:
        raise ConfigError(
            f"{project / 'dbt_project.yml'} has no landing folder for models/raw, which a build "
            "needs. Nothing was written. Add it, with the defaults of the layers (docs/"
            f"landing.md), then run this command again:\n{_DEFAULTS.format(project=name)}"
        )
    taken = dict(_taken(project))
    landed = _below((project / _rendered(written)).resolve(), samples)
    if landed is not None and landed in taken:
        raise ConfigError(
            f"{taken[landed]} already reads the folder '{landed}' of the landing folder. Nothing "
            "was written. Two raw models of one folder would read each file twice."
        )
    free = entity if entity not in taken else f"{source}/{entity}"
    return _Place(written, landed or free)


def _root(level: Any, steps: Sequence[str]) -> str | None:
    """Return ``drop.root`` of the most specific folder of models that has it."""
    if not isinstance(level, Mapping):
        return None
    inner = _root(level.get(steps[0]), steps[1:]) if steps else None
    meta = level.get("+meta") or level.get("meta")
    drop = meta.get("drop") if isinstance(meta, Mapping) else None
    root = drop.get("root") if isinstance(drop, Mapping) else None
    return inner or (str(root) if root else None)


def _rendered(text: str) -> str:
    """Return a setting with its ``env_var`` calls rendered; unchanged if it needs more of dbt."""
    import jinja2

    def env_var(name: str, default: str = "") -> str:
        return os.environ.get(name, default)

    try:
        return jinja2.Environment().from_string(text).render(env_var=env_var)
    except jinja2.TemplateError:
        return text


def _below(root: Path, samples: Sequence[Path]) -> str | None:
    """Return the samples' folder below the landing folder; None if they are elsewhere."""
    folders = {(p if p.is_dir() else p.parent).resolve() for p in samples}
    found = {f.parent if f.name.startswith(DROP_PREFIX) else f for f in folders}
    (folder, *others) = found
    return None if others or root not in folder.parents else folder.relative_to(root).as_posix()


def _taken(project: Path) -> Iterable[tuple[str, str]]:
    """Yield the folders that raw models of the project read, each with its model."""
    for path in sorted((project / "models").rglob("*.y*ml")):
        try:
            models = (yaml.safe_load(path.read_text()) or {}).get("models") or []
            for model in models:
                entry = ((model.get("config") or {}).get("meta") or {}).get("landing") or {}
                folder = str(entry.get("path") or entry.get("entity") or "").strip("/")
                if folder:
                    yield folder, str(model.get("name"))
        except (yaml.YAMLError, OSError, AttributeError, TypeError):
            continue  # dbt reports the fault


# ---------------------------------------------------------------- the command


@dataclass(frozen=True)
class SourceAdded:
    """A new source table.

    Attributes:
        written: The files.
        assumed: What the command has guessed from the samples.
        folder: The folder of its landing files.
        build: The command that builds its models.
    """

    written: tuple[str, ...]
    assumed: tuple[str, ...]
    folder: str
    build: str


def add(
    samples: Sequence[Path],
    source: str,
    entity: str,
    answers: SourceAnswers,
    project: Path,
    history: bool = False,
) -> SourceAdded:
    """Write the files of a new source table.

    Raises:
        ConfigError: a file exists already, the folder is not a dbt project or has no landing
            folder, or a name is illegal.
        LandingError: the samples cannot be used, or are ambiguous.
    """
    if not (project / "dbt_project.yml").is_file():
        raise ConfigError(
            f"{project.resolve()} is not a dbt project. Nothing was written. Set --project-dir."
        )
    place = _place(project, source, entity, samples)
    found = guess(read_samples(samples), entity, answers)
    if place.path != entity:
        found.entry["path"] = place.path
    wanted = files(source, entity, found, history)
    existing = [path for path in wanted if (project / path).exists()]
    if existing:
        raise ConfigError(
            f"{', '.join(existing)}: exists already. Nothing was written. Delete it to start "
            "again, or choose another --entity."
        )
    for path, text in wanted.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    name = f"{source}__{entity}"
    ends = [f"stg_{name}", f"quarantine_{name}"]
    ends += [stem for path in wanted if (stem := Path(path).stem).startswith(("snp_", "hst_"))]
    command = f"dbt build --select {' '.join(f'+{end}' for end in ends)}"
    return SourceAdded(tuple(wanted), tuple(found.assumed), f"{place.root}/{place.path}", command)


def lines(added: SourceAdded, source: str, entity: str) -> list[str]:
    """Return the lines to print."""
    return [
        "Wrote",
        *(f"  {path}" for path in added.written),
        "Assumed",
        *(f"  {line}" for line in added.assumed),
        "Next",
        f"  check the entry      models/raw/{source}/_{source}__{entity}__models.yml",
        f"  deliver files        {added.folder}/load_date=YYYY-MM-DD/",
        f"  build the models     {added.build}",
    ]


def _add(arguments: argparse.Namespace) -> CommandEnd:
    key = tuple(k.strip() for k in arguments.key.split(",") if k.strip())
    answers = SourceAnswers(key, arguments.kind, arguments.operation, arguments.full)
    added = add(
        arguments.sample, arguments.source, arguments.entity, answers,
        find_project(arguments.project_dir), arguments.history,
    )  # fmt: skip
    print("\n".join(lines(added, arguments.source, arguments.entity)))
    return CommandEnd(result=added)
