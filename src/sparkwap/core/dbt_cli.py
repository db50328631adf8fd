"""dbt as a program: which project, profile and variables a command of ours calls it with."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.redaction import redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_DBT_OPTIONS = ("project-dir", "profiles-dir", "profile", "target", "target-path", "vars")


_PATIENCE_SECONDS = 45.0


# The dbt of this Python, whatever PATH says.
_DBT = (sys.executable, "-c", "from dbt.cli.main import cli; cli()")


@dataclass(frozen=True)
class LakePlace:
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

        In this process: importing dbt takes seconds, and `lake` needs it, too.

        Raises:
            SparkwapError: dbt cannot parse it.
        """
        from dbt.cli.main import dbtRunner

        with _environment(self.environment):
            parsed = dbtRunner().invoke(self.arguments("--quiet", "parse"))
        if isinstance(parsed.exception, KeyboardInterrupt):
            raise parsed.exception
        if not parsed.success:
            why = f": {redact(str(parsed.exception)).strip()}" if parsed.exception else ""
            raise SparkwapError(
                f"dbt cannot parse the project{why}. Nothing was read or built. Correct the "
                f"project, then: {again}"
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

    def lake(self) -> LakePlace:
        """The lake that the profile names.

        Raises:
            ConfigError: the profile cannot be read, or is for another adapter.
        """
        profile = self.read_profile()
        credentials = profile.credentials
        settings = credentials.catalog_settings(str(self.project_dir))
        return LakePlace(credentials.catalog_name, dict(settings), profile.target_name)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """More environment variables, for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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
