"""``sparkwap build``: bring the lake up to the landing folder, one gated build per drop.

A drop is all landing files of one load date. Each is read, built, audited and published before
the next one is touched, so that a history sees every state, and a bad drop holds up only what
came after it. What was read already is written in the raw tables (see `sparkwap.landing`); it is
looked up in the catalog, without Spark.

dbt is run as a program, once to learn of the raw models and once per drop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sparkwap import landing
from sparkwap.errors import ConfigError, SparkwapError
from sparkwap.landing import Entry, LandingError, LandingFile
from sparkwap.redaction import redact
from sparkwap.settings import UNTIL

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_DATES_SHOWN = 3
_DBT_OPTIONS = ("project-dir", "profiles-dir", "profile", "target", "target-path", "vars")
_PATIENCE_SECONDS = 45.0
# The dbt of this Python, whatever PATH says.
_DBT = (sys.executable, "-c", "from dbt.cli.main import cli; cli()")


@dataclass(frozen=True)
class RawModel:
    """A raw model of the project: its name and table, and where its files land."""

    name: str
    table: tuple[str, str]
    root: Path
    entry: Entry


@dataclass(frozen=True)
class Lake:
    """A lake's catalog: its name, and PyIceberg's properties; and dbt's target that names it."""

    name: str
    properties: Mapping[str, str]
    target: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is a catalog yet; opening one would make it."""
        uri = self.properties["uri"]
        file = uri.removeprefix("sqlite:///").split("?")[0]
        return not uri.startswith("sqlite:") or Path(file).exists()

    def open(self) -> Catalog | None:
        """The catalog; None if there is none yet."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.name, **self.properties) if self.exists else None


@dataclass(frozen=True)
class Drop:
    """The unread files of one load date; None for those whose date only their events tell."""

    load_date: date | None
    files: tuple[LandingFile, ...]

    def __str__(self) -> str:
        return str(self.load_date or "without a date")


# ---------------------------------------------------------------- decisions


def raw_models(manifest: Mapping[str, Any], project_dir: Path) -> list[RawModel]:
    """The enabled models of dbt's manifest that have a landing entry, by name.

    Raises:
        ConfigError: a model names no landing folder.
        LandingError: an entry cannot be used.
    """
    nodes = [
        node
        for node in manifest["nodes"].values()
        if node["resource_type"] == "model" and node["config"].get("meta", {}).get("landing")
    ]
    return [
        RawModel(
            str(node["name"]),
            (node["schema"], node["alias"]),
            (project_dir / landing.root_of(node["name"], node["config"]["meta"])).resolve(),
            landing.parse_entry(node["config"]["meta"]["landing"]),
        )
        for node in sorted(nodes, key=lambda node: str(node["name"]))
    ]


def switched_off(manifest: Mapping[str, Any]) -> list[str]:
    """The folders of the disabled models that have a landing entry."""
    disabled = [node for nodes in manifest.get("disabled", {}).values() for node in nodes]
    return sorted(
        {
            str(node["fqn"][-2])
            for node in disabled
            if node["resource_type"] == "model" and node["config"].get("meta", {}).get("landing")
        }
    )


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


@dataclass(frozen=True)
class DbtCall:
    """How dbt is called: which project and profile, which variables.

    ``build`` holds the arguments that are for ``dbt build`` alone, ``environment`` the settings of
    these calls: with other ``--vars`` than the last time dbt parses the whole project anew.
    """

    project_dir: Path
    target: str | None
    profile: str | None
    profiles_dir: Path
    target_path: Path
    variables: Mapping[str, Any]
    build: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str, **environment: str) -> int:
        """Run dbt on this terminal, with more environment variables; returns its exit code."""
        given = {**os.environ, **self.environment, **environment}
        return _patiently([*_DBT, *self.arguments(*command)], given)

    def arguments(self, *command: str) -> list[str]:
        """What comes behind `dbt` on the command line."""
        variables = json.dumps(dict(self.variables), default=str)
        given = ["--vars", variables] if self.variables else []
        return [*command, *self._common(), *given]

    def _common(self) -> list[str]:
        options = {
            "--project-dir": self.project_dir,
            "--profiles-dir": self.profiles_dir,
            "--profile": self.profile,
            "--target": self.target,
            "--target-path": self.target_path,
        }
        return [text for k, v in options.items() if v is not None for text in (k, str(v))]

    def manifest(self, again: str = "sparkwap build") -> Mapping[str, Any]:
        """Parse the project; ``again`` is the command that goes on when it cannot be parsed.

        Raises:
            SparkwapError: dbt cannot parse it; its own message is on the terminal.
        """
        code = self.run("--quiet", "parse")
        if code:
            raise SparkwapError(
                f"dbt cannot parse the project (code {code}, its message is above). Nothing was "
                f"read or built. Correct the project, then: {again}"
            )
        path = self.project_dir / self.target_path / "manifest.json"
        found: Mapping[str, Any] = json.loads(path.read_text())
        return found

    def read_profile(self) -> Any:
        """The profile (dbt's object), rendered by dbt, with credentials of this adapter.

        Raises:
            ConfigError: the profile cannot be read, or is for another adapter.
        """
        # Only dbt knows how to render a profile; nothing else here needs dbt.
        from dbt.config.runtime import load_profile
        from dbt.flags import set_from_args
        from dbt_common.context import set_invocation_context

        folders = {"PROFILES_DIR": str(self.profiles_dir), "PROJECT_DIR": str(self.project_dir)}
        try:
            set_invocation_context(os.environ)  # what env_var() reads
            set_from_args(argparse.Namespace(**folders), None)
            profile = load_profile(
                str(self.project_dir), dict(self.variables), self.profile, self.target
            )
        except Exception as error:
            raise ConfigError(
                f"The profile cannot be read: {redact(str(error)).strip()}. Nothing was read or "
                f"built. The project is {self.project_dir}, and profiles.yml was looked for in "
                f"{self.profiles_dir}; name others with --project-dir and --profiles-dir."
            ) from error
        if profile.credentials.type != "sparkwap":
            raise ConfigError(
                f"The profile's target '{profile.target_name}' has type "
                f"'{profile.credentials.type}'; this command needs type 'sparkwap'. Name another "
                "one with --target."
            )
        return profile

    def lake(self) -> Lake:
        """The lake that the profile names.

        Raises:
            ConfigError: the profile cannot be read, or is for another adapter.
        """
        profile = self.read_profile()
        credentials = profile.credentials
        settings = credentials.catalog_settings(str(self.project_dir))
        return Lake(credentials.catalog_name, dict(settings), profile.target_name)


def _patiently(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command; an interrupt is its own to heed, and is passed on when it has ended.

    dbt cancels its statements and gives its lease back, which takes a moment.
    """
    with subprocess.Popen(command, env=environment) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(_PATIENCE_SECONDS)
            child.kill()
            raise


def published(catalog: Catalog, model: RawModel) -> Table | None:
    """A raw table; None if no run has published it yet."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(model.table)
    except NoSuchTableError:
        return None
    return None if table.current_snapshot() is None else table


def known_files(lake: Lake, models: Sequence[RawModel]) -> dict[str, str]:
    """Name to SHA-256 of the files that the published raw tables hold."""
    catalog = lake.open()
    if catalog is None:
        return {}
    return {name: digest for m in models for name, digest in _marks(catalog, m).items()}


def _marks(catalog: Catalog, model: RawModel) -> dict[str, str]:
    table = published(catalog, model)
    if table is None:
        return {}
    marks = table.scan("_kind = 'file'", selected_fields=("_file_path", "_file_sha256")).to_arrow()
    names, digests = marks["_file_path"].to_pylist(), marks["_file_sha256"].to_pylist()
    return dict(zip(names, digests, strict=True))


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


def parse_call(arguments: Sequence[str]) -> DbtCall:
    """Take from the arguments of ``dbt build`` those that every call of dbt needs.

    Raises:
        ConfigError: ``--vars`` is not a YAML mapping.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--project-dir", type=Path)
    parser.add_argument("--profiles-dir", type=Path)
    parser.add_argument("--target-path", type=Path, default=_env_path("DBT_TARGET_PATH", "target"))
    parser.add_argument("--profile")
    parser.add_argument("--target", "-t")
    parser.add_argument("--vars", default="{}")
    own, rest = parser.parse_known_args(list(arguments))
    try:
        variables = yaml.safe_load(own.vars) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"--vars is not YAML: {error}. Nothing was built.") from error
    if not isinstance(variables, dict):
        raise ConfigError(f"--vars is '{own.vars}'; it is a YAML mapping such as '{{key: value}}'.")
    project_dir = find_project(own.project_dir)
    return DbtCall(
        project_dir=project_dir,
        target=own.target,
        profile=own.profile,
        profiles_dir=find_profiles(own.profiles_dir, project_dir),
        target_path=own.target_path,
        variables=variables,
        build=tuple(rest),
    )


def find_project(given: Path | None = None) -> Path:
    """The project's folder, as dbt finds it.

    Args:
        given: ``--project-dir``; else ``DBT_PROJECT_DIR``, else the nearest folder from here upward
            with a ``dbt_project.yml``, else the working folder.
    """
    named = given or _env_path("DBT_PROJECT_DIR")
    if named is not None:
        return named.resolve()
    here = Path.cwd()
    return next((f for f in (here, *here.parents) if (f / "dbt_project.yml").exists()), here)


def find_profiles(given: Path | None, project_dir: Path) -> Path:
    """The folder of ``profiles.yml``: wherever dbt finds one, else the project's own folder.

    Args:
        given: ``--profiles-dir``; else ``DBT_PROFILES_DIR``, else the working folder, else
            ``~/.dbt``, else, where dbt would find none, the project's folder.
        project_dir: the project's folder.
    """
    named = given or _env_path("DBT_PROFILES_DIR")
    if named is not None:
        return named.resolve()
    usual = Path.home() / ".dbt"
    folders = (Path.cwd(), usual, project_dir)
    return next((f for f in folders if (f / "profiles.yml").exists()), usual)


def add_dbt_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that say which project and profile dbt is called with."""
    for option in _DBT_OPTIONS:
        short = ["-t"] if option == "target" else []
        parser.add_argument(f"--{option}", *short, help="as for dbt")


def given_options(parsed: argparse.Namespace) -> list[str]:
    """Those options of `add_dbt_options` that were given, as they were."""
    given = {option: getattr(parsed, option.replace("-", "_")) for option in _DBT_OPTIONS}
    return [a for k, v in given.items() if v is not None for a in (f"--{k}", str(v))]


def call_of(parsed: argparse.Namespace) -> DbtCall:
    """How dbt is called, by the options of `add_dbt_options`.

    Raises:
        ConfigError: ``--vars`` is not a YAML mapping.
    """
    return parse_call(given_options(parsed))


def say(line: str) -> None:
    """Say on standard error what a command is about to do, or has come to."""
    print(f"sparkwap: {line}", file=sys.stderr, flush=True)


def _env_path(name: str, default: str | None = None) -> Path | None:
    value = os.environ.get(name) or default
    return Path(value) if value else None
