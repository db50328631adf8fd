"""Calls dbt as a program, with a project, a profile and variables."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from sparkwap.core import command_end, next_command
from sparkwap.core.command_end import CommandEnd, Outcome
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_DBT_OPTIONS = ("project-dir", "profiles-dir", "profile", "target", "target-path", "vars")


_PATIENCE = 45.0
"""The seconds for which dbt may end after an interrupt."""

DBT = (sys.executable, "-c", "from sparkwap.core.dbt_cli import run_dbt; run_dbt()")
"""Starts dbt of this Python environment, also if PATH has another one."""

VARIABLES = "sparkwap_variables"
"""The key of the project's variables in a manifest; dbt's own manifest does not have them."""


def project_variables(written: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the digests of the values of each variable, by package, without those of the gate.

    The ledger keeps them; a value may be secret or personal.

    Args:
        written: ``vars`` of ``dbt_project.yml``; dbt renders no Jinja in it.
    """

    def own(values: Mapping[Any, Any]) -> dict[Any, Any]:
        return {name: v for name, v in values.items() if not str(name).startswith("wap_")}

    found: dict[str, dict[str, str]] = {}
    scopes = {"": written, **{str(k): v for k, v in written.items() if isinstance(v, dict)}}
    for scope, values in scopes.items():
        for name, value in own(values).items():
            shown = own(value) if isinstance(value, dict) else value
            digest = hashlib.sha256(repr(shown).encode()).hexdigest()
            found.setdefault(str(name), {})[scope] = digest
    return found


@dataclass(frozen=True)
class LakePlace:
    """A lake's catalog: its name, its PyIceberg properties, and the dbt target that uses it.

    ``session`` is a token of the profile's settings of Spark, and of dbt's ``dispatch``.
    """

    name: str
    properties: Mapping[str, str]
    target: str = ""
    session: str | None = None

    @property
    def exists(self) -> bool:
        """Whether the catalog exists; to open a missing catalog would create it."""
        uri = self.properties.get("uri", "")
        file = uri.removeprefix("sqlite:///").split("?")[0]
        return not uri.startswith("sqlite:") or Path(file).exists()

    def open(self) -> Catalog | None:
        """Return the catalog; None if it does not exist yet."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.name, **self.properties) if self.exists else None


@dataclass(frozen=True)
class DbtEnd:
    """The end of a dbt command: its exit code, and the gate's document, if it has written one."""

    code: int
    document: Mapping[str, Any] | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the command."""
        return command_end.of_dbt(self.code, self.document)

    @property
    def result(self) -> Any:
        """The result in the gate's document; None if there is none."""
        return self.document["result"] if self.document else None

    @property
    def message(self) -> str | None:
        """The error; None if there is none."""
        if self.document is not None:
            return str(self.document["message"]) if self.document["message"] else None
        if self.code:
            return f"dbt ended with exit code {self.code} before the gate; its output has the error"
        return None


@dataclass(frozen=True)
class DbtCall:
    """The options of dbt calls: project, profile and variables.

    ``build`` has the arguments of ``dbt build`` only. ``environment`` has the settings of these
    calls: changed ``--vars`` would make dbt parse the whole project again.
    """

    project_dir: Path
    target: str | None
    profile: str | None
    profiles_dir: Path
    target_path: Path
    variables: Mapping[str, Any]
    build: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str, **environment: str) -> DbtEnd:
        """Run dbt on this terminal, with more environment variables."""
        with TemporaryDirectory(prefix="sparkwap-") as folder:
            results = Path(folder) / command_end.FILE_NAME
            given = {command_end.VARIABLE: str(results), **self.environment, **environment}
            code = _run_interruptible([*DBT, *self.arguments(*command)], {**os.environ, **given})
            return DbtEnd(code, command_end.read(results))

    def arguments(self, *command: str) -> list[str]:
        """Return the arguments after `dbt` on the command line."""
        options = {
            "--project-dir": self.project_dir,
            "--profiles-dir": self.profiles_dir,
            "--profile": self.profile,
            "--target": self.target,
            "--target-path": self.target_path,
            "--vars": as_yaml(self.variables) if self.variables else None,
        }
        given = (text for k, v in options.items() if v is not None for text in (k, str(v)))
        return [*command, *given]

    def manifest(self, again: str = "") -> Mapping[str, Any]:
        """Parse the project and return the manifest, as dbt writes it.

        dbt runs in this process: its import takes seconds, and `lake` needs it too. The file that
        dbt writes is not read, because another dbt may be writing it too, and not as a whole.

        Args:
            again: The command to run after a correction of the project, for the message; empty for
                that of a build.
        """
        from dbt.cli.main import dbtRunner
        from dbt.config.project import load_raw_project
        from dbt_common.utils.encoding import JSONEncoder

        with _environment(self.environment):
            parsed = dbtRunner().invoke(self.arguments("--quiet", "parse"))
        if isinstance(parsed.exception, KeyboardInterrupt):
            raise parsed.exception
        if not parsed.success:
            why = (
                f": {redact(str(parsed.exception)).strip().rstrip('.')}" if parsed.exception else ""
            )
            raise ConfigError(
                f"dbt cannot parse the project{why}. Nothing was read or built. Correct the "
                f"project, then: {again or next_command.sparkwap('build')}"
            )
        manifest: Any = parsed.result
        whole = manifest.writable_manifest().to_dict(omit_none=False, context={"artifact": True})
        written = load_raw_project(str(self.project_dir)).get("vars") or {}
        as_written = json.loads(json.dumps(whole, cls=JSONEncoder))
        return {**as_written, VARIABLES: project_variables(written)}

    def read_profile(self) -> Any:
        """Return dbt's profile object, rendered, with credentials of this adapter."""
        # Imported here, because only this method needs dbt.
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
                f"built. The project folder is {self.project_dir}, the profiles folder "
                f"{self.profiles_dir}; set others with --project-dir and --profiles-dir."
            ) from error
        if profile.credentials.type != "sparkwap":
            raise ConfigError(
                f"The profile's target '{profile.target_name}' has type "
                f"'{profile.credentials.type}'; this command needs type 'sparkwap'. Nothing was "
                "read or built. Set another target with --target."
            )
        return profile

    def lake(self) -> LakePlace:
        """Return the lake of the profile."""
        profile = self.read_profile()
        credentials = profile.credentials
        settings = credentials.catalog_settings(str(self.project_dir))
        return LakePlace(
            credentials.catalog_name,
            dict(settings),
            profile.target_name,
            credentials.session_token(str(self.project_dir)),
        )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set more environment variables while the block runs."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def terminated(*_: object) -> NoReturn:
    """Handle SIGTERM as an interrupt, but once: `timeout` and systemd also signal the group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_dbt() -> None:
    """Run dbt in this process, of which SIGTERM is an interrupt too."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(sent) is not signal.SIG_IGN:  # as background jobs do
            signal.signal(sent, terminated)
    from dbt.cli.main import cli

    cli(prog_name="dbt")


def _run_interruptible(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `DBT`; after an interrupt, wait for its end before raising.

    dbt gets it too, perhaps also by the terminal, and needs seconds to cancel its statements and
    release its lease.
    """
    # Where standard output is for machines, text goes to standard error.
    output = (sys.__stderr__ or subprocess.DEVNULL) if sys.stdout is sys.stderr else None
    with subprocess.Popen(command, env=environment, stdout=output) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(_PATIENCE)
            child.kill()
            raise


def as_yaml(values: Mapping[str, Any]) -> str:
    """Return a mapping as dbt reads it from ``--vars`` and ``--args``."""
    # YAML has no pairs of surrogates, as JSON in ASCII has.
    return json.dumps(dict(values), default=str, ensure_ascii=False)


def parse_call(arguments: Sequence[str]) -> DbtCall:
    """Split the arguments of ``dbt build`` into the options of all dbt calls, and the rest.

    Options that are not given come from dbt's environment variables, as in dbt. All later
    `next_command` have the target and the profile.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--project-dir", type=Path)
    parser.add_argument("--profiles-dir", type=Path)
    target_path = _of_environment("TARGET_PATH") or "target"
    parser.add_argument("--target-path", type=Path, default=target_path)
    parser.add_argument("--profile", default=_of_environment("PROFILE"))
    parser.add_argument("--target", "-t", default=_of_environment("TARGET"))
    parser.add_argument("--vars", default="{}")
    own, rest = parser.parse_known_args(list(arguments))
    try:
        variables = yaml.safe_load(own.vars) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"--vars is not YAML: {error}. Nothing was read or built.") from error
    if not isinstance(variables, dict):
        raise ConfigError(
            f"--vars is '{own.vars}', which is not a YAML mapping such as '{{key: value}}'. "
            "Nothing was read or built."
        )
    project_dir = find_project(own.project_dir)
    next_command.set_target(own.target, own.profile)
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
    """Return the project's folder, by dbt's rules.

    Args:
        given: ``--project-dir``. The default is ``DBT_PROJECT_DIR``, else the working folder or its
            nearest parent with a ``dbt_project.yml``, else the working folder.
    """
    named = given or _of_environment("PROJECT_DIR")
    if named is not None:
        return Path(named).resolve()
    here = Path.cwd()
    return next((f for f in (here, *here.parents) if (f / "dbt_project.yml").exists()), here)


def find_profiles(given: Path | None, project_dir: Path) -> Path:
    """Return the folder of ``profiles.yml``, by dbt's rules and in the project's folder.

    Args:
        given: ``--profiles-dir``. The default is ``DBT_PROFILES_DIR``, else the first of the
            working folder, ``~/.dbt`` and the project's folder that has a ``profiles.yml``.
    """
    named = given or _of_environment("PROFILES_DIR")
    if named is not None:
        return Path(named).resolve()
    usual = Path.home() / ".dbt"
    folders = (Path.cwd(), usual, project_dir)
    return next((f for f in folders if (f / "profiles.yml").exists()), usual)


def add_dbt_options(parser: argparse.ArgumentParser, *, short: bool = True) -> None:
    """Add dbt's options for project and profile to a command; ``short``: also ``-t``."""
    for option in _DBT_OPTIONS:
        more = ["-t"] if option == "target" and short else []
        parser.add_argument(f"--{option}", *more, help="as for dbt")


def add_dbt_command(
    commands: Commands,
    name: str,
    text: str,
    own: str,
    epilog: str,
    run: Callable[[argparse.Namespace], CommandEnd],
) -> None:
    """Add a command whose arguments are those of ``dbt build``, besides its own.

    Args:
        own: its own arguments, as they are shown in its usage.
        run: runs it; ``arguments`` has all of its arguments.
    """
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        usage=f"sparkwap {name} [{own}] [--output json] [argument of dbt build ...]",
        epilog=epilog,
        # Without a prefix for options, argparse parses none of dbt's.
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)

    def handler(parsed: argparse.Namespace) -> CommandEnd:
        if {"-h", "--help"} & set(parsed.arguments):
            parser.print_help()
            return CommandEnd()
        return run(parsed)

    parser.set_defaults(handler=handler)


def given_options(parsed: argparse.Namespace) -> list[str]:
    """Return the given options of `add_dbt_options` as arguments."""
    given = {option: getattr(parsed, option.replace("-", "_")) for option in _DBT_OPTIONS}
    return [a for k, v in given.items() if v is not None for a in (f"--{k}", str(v))]


def call_of(parsed: argparse.Namespace) -> DbtCall:
    """Return the dbt call for the options of `add_dbt_options`."""
    return parse_call(given_options(parsed))


def say(line: str) -> None:
    """Print a progress message of a command on standard error, without secrets."""
    print(f"sparkwap: {redact(line)}", file=sys.stderr, flush=True)


def _of_environment(option: str) -> str | None:
    """Return an option of dbt from the environment: of its two names, dbt prefers the new one."""
    names = (f"DBT_ENGINE_{option}", f"DBT_{option}")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
