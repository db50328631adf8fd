"""The settings of the gate, read from dbt's vars."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

from sparkwap.core.caller import ACTOR
from sparkwap.core.errors import ConfigError
from sparkwap.core.names import BRANCH_RULE, branch_problem
from sparkwap.gate import alert_settings as alerting
from sparkwap.gate.alert_settings import AlertSettings
from sparkwap.gate.statement_effects import name_of
from sparkwap.gate.statement_reader import Name
from sparkwap.landing.entry import REPLAY, UNTIL

PublishMode = Literal["run", "lineage", "never"]
ReadsMode = Literal["warn", "ignore", "strict"]
SweepMode = Literal["never", "end_of_run"]
LogMode = Literal["file", "dbt", "none"]
ActorMode = Literal["record", "never"]
WarningMode = Literal["known", "publish", "hold"]
DisabledMode = Literal["hold", "publish"]
AuditMode = Literal["fused", "single"]

_T = TypeVar("_T")
_PREFIX = "wap_"
_ENVIRONMENT = "SPARKWAP_"
_OF_ENVIRONMENT = {
    f"{_ENVIRONMENT}{key.upper()}": f"{_PREFIX}{key}"
    for key in ("branch", "publish", "warnings", "disabled_tests", "reads")
}
MOST_DAYS = 36_500
"""The longest time for a setting: no date before the first one of the calendar comes out."""
_FROM_ONE = "a whole number of 1 or more"
_DAYS = f"{_FROM_ONE}, at most {MOST_DAYS}"


def _whole(least: int, most: float = float("inf")) -> Callable[[object], int]:
    def parse(value: object) -> int:
        # A bool is an int in Python, so `wap_tag_retention_days: yes` would be one day.
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        try:
            number = int(value)
        except ValueError:
            raise ValueError from None
        if not least <= number <= most:
            raise ValueError
        return number

    return parse


def _one_of(values: Mapping[str, _T]) -> Callable[[object], _T]:
    def parse(value: object) -> _T:
        if not isinstance(value, str) or value not in values:
            raise ValueError
        return values[value]

    return parse


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        seconds = float(value)
    except ValueError:
        raise ValueError from None
    # Reject NaN and infinity.
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds


def _budget(value: object) -> dict[str, Any]:
    if isinstance(value, str) and value.strip().endswith("%"):
        share = _seconds(value.strip()[:-1]) / 100
        if share > 1:
            raise ValueError
        return {"share": share}
    return {"seconds": _seconds(value), "share": 0.0}


def _flag(value: object) -> bool:
    return _one_of({"true": True, "false": False})(str(value).lower())


def _names(value: object) -> tuple[str, ...]:
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(name, str) for name in values):
        raise ValueError
    return tuple(name.strip() for name in values if name.strip())


def _tables(value: object) -> tuple[Name, ...]:
    return tuple(name_of(name) for name in _names(value))


def _branch(value: object) -> str | None:
    if not isinstance(value, str):
        raise ValueError("it is not text; put it in quotes")
    problem = branch_problem(value) if value else None
    if problem is not None:
        raise ValueError(problem)
    return value or None


def _setting(default: _T, parse: Callable[[Any], object], legal: str, key: str = "") -> _T:
    """Return a field of settings, which `_Reader` reads.

    Args:
        legal: The legal values in words.
        key: The key in dbt's vars, if it is not the name of the field.
    """
    return field(default=default, metadata={"rule": (parse, legal), "key": key})


def _days(default: int, key: str) -> int:
    return _setting(default, _whole(1, MOST_DAYS), _DAYS, key)


@dataclass(frozen=True, slots=True)
class Limits:
    """The minimum ages at which a sweep deletes objects.

    Attributes:
        run_days: Days since the last change of an audit branch that a run has named.
        named_days: Days since the last change of a branch that a user has named (``pr_123``).
        file_days: Days since an unreferenced file was written. It must be longer than any job takes
            from its first file to its commit.
        manifest_days: Days since the last use of a manifest in the ledger.
    """

    run_days: int = _days(7, "wap_sweep_after_days")
    named_days: int = _days(30, "wap_sweep_named_after_days")
    file_days: int = _days(3, "wap_sweep_files_after_days")
    manifest_days: int = _days(90, "wap_sweep_manifests_after_days")


@dataclass(frozen=True, slots=True)
class Upkeep:
    """When and how much a run maintains the tables.

    Attributes:
        seconds: The budget of the maintenance at the end of a run; None for a share.
        share: The budget as a part of the time that all runs of the last days have taken.
        keep_days: Days for which `main` keeps its whole history.
        keep_publishes: How many of the latest publishes of a table can be rolled back at least; of
            earlier ones, the last of each day can be.
    """

    when: SweepMode = field(default="never", metadata={"key": "wap_maintain"})
    seconds: float | None = None
    share: float = 0.1
    keep_days: int = _days(7, "wap_maintain_keep_days")
    keep_publishes: int = _setting(100, _whole(1), _FROM_ONE, "wap_maintain_keep_publishes")


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The settings of the gate.

    Attributes:
        publish: `run`: every table of the run or none. `lineage`: the clean tables whose upstream
            tables, and tables that a test reads together with them, also publish. `never`: all
            tables stay on the audit branch.
        warnings: Whether a table with a test that warned is published or held. `known`: published,
            unless the test was stricter at the last publish of the table.
        require_tests: Hold models, snapshots and seeds that no test reads.
        branch: The user's name for the audit branch; None for a new branch of the run.
        tag_retention_days: Days that the tag of a published snapshot keeps the snapshot from
            expiring; None for no limit.
        guard: Refuse statements that are not known to be harmless.
        disabled_tests: Whether a table with a disabled test is published or held.
        rebuilds: Maximum number of rebuilds after a table moved on `main`; 0 for none.
        rebuild_wait: Seconds before the first rebuild; the wait doubles each time, with a random
            deviation of up to a half.
        rebuild_timeout: Maximum seconds of a rebuild; 0 for no limit, None for a limit that depends
            on the duration of the run.
        audits: `fused`: one statement may answer tests that are due together. `single`: each test
            has its own statement.
        incremental_audits: Whether a test that has passed reads only the rows that were added
            since, where this is proven to be enough.
        whole_audit_days: Days after which such a test reads all rows again.
        whole_audit_every: Audits after which it reads all rows again.
        reuse: Leave out nodes and tests whose code and inputs are as at their last publish.
        reads: The reaction if a table that the run only read has moved at the publish: `warn` in
            the summary, `ignore` it, or `strict`: refuse the publish and rebuild.
        log: The place of the structured log: `sparkwap.jsonl` in dbt's target folder, dbt's log, or
            none.
        diff_hide: Columns whose values no data diff shows: `column`, `table.column` or
            `schema.table.column`; `*` matches any text.
        writes: Ungated tables that hooks and operations may write to and change.
        actor: Whether the ledger records who has called a command, and on which host.
        varying: Variables that may have another value in each run; a test that uses one of them is
            not held because of it.
    """

    publish: PublishMode = "run"
    warnings: WarningMode = "known"
    require_tests: bool = False
    branch: str | None = _setting(None, _branch, BRANCH_RULE)
    tag_retention_days: int | None = _setting(90, _whole(1, MOST_DAYS), f"{_DAYS}, or null")
    guard: bool = True
    disabled_tests: DisabledMode = "hold"
    rebuilds: int = _setting(2, _whole(0), "a whole number, 0 for no rebuild")
    rebuild_wait: float = _setting(2.0, _seconds, "seconds, 0 or more")
    rebuild_timeout: float | None = _setting(None, _seconds, "seconds, 0 for no limit")
    audits: AuditMode = "fused"
    incremental_audits: bool = _setting(
        True, _one_of({"auto": True, "never": False}), "auto, never", "wap_audits_incremental"
    )
    whole_audit_days: float = _days(7, "wap_audits_whole_days")
    whole_audit_every: int = _setting(50, _whole(0), "a whole number", "wap_audits_whole_every")
    reuse: bool = False
    reads: ReadsMode = "warn"
    sweep: SweepMode = "never"
    sweep_limits: Limits = field(default_factory=Limits)
    upkeep: Upkeep = field(default_factory=Upkeep)
    log: LogMode = "file"
    diff_hide: tuple[str, ...] = _setting((), _names, "a list of column names")
    alerts: AlertSettings = field(
        # No legal values: a message has only the parser's text, as the value may contain a secret.
        default_factory=AlertSettings,
        metadata={"rule": (alerting.parse, None)},
    )
    openlineage: SweepMode = "never"
    writes: tuple[Name, ...] = _setting((), _tables, "a list of names: schema.table")
    actor: ActorMode = "record"
    varying: tuple[str, ...] = _setting(
        (), _names, "a list of names of variables", "wap_varying_vars"
    )

    @classmethod
    def from_vars(cls, variables: Mapping[str, object]) -> "GateSettings":
        """Read the settings from dbt's vars.

        A missing key, or a key without a value (`wap_branch:`), has its default; but
        `wap_tag_retention_days` without a value keeps tags without limit. Numbers and booleans may
        be text, as from `env_var`. Keys without the prefix `wap_` are ignored.

        Raises:
            ConfigError: Unknown keys or illegal values; one message lists all of them.
        """
        reader = _Reader(variables)
        found = reader.fill(cls)
        legal = "seconds, or a share of the runs' time such as 10%"
        budget = reader.read("wap_maintain_budget", _budget, legal)
        reader.finish()
        if budget:
            found = replace(found, upkeep=replace(found.upkeep, **budget))
        if variables.get("wap_tag_retention_days", 0) is None:
            found = replace(found, tag_retention_days=None)
        return found


def of_one_call(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that are settings of one call, if they have a value.

    They exist because dbt parses the whole project again when ``--vars`` change.

    Raises:
        ConfigError: A variable looks like a setting and is none, or a setting is empty without
            which a run publishes on `main`.
    """
    problems = [f"{key}: {why}" for key, text in environment.items() if (why := _wrong(key, text))]
    if problems:
        raise ConfigError(
            "The environment variables of sparkwap have errors; nothing was run.\n  "
            + "\n  ".join(problems)
            + "\nCorrect or unset them, and run again."
        )
    return {key: environment[key] for key in (*_OF_ENVIRONMENT, UNTIL, REPLAY)
            if environment.get(key)}  # fmt: skip


def _wrong(variable: str, text: str) -> str:
    """Return what is wrong with an environment variable; empty if nothing is."""
    if variable in _OF_ENVIRONMENT:
        needed = variable in ("SPARKWAP_BRANCH", "SPARKWAP_PUBLISH")
        return "it has no value" if needed and not text else ""
    if not variable.startswith(_ENVIRONMENT) or variable in (UNTIL, REPLAY, ACTOR):
        return ""
    name = variable.removeprefix(_ENVIRONMENT).removeprefix(_PREFIX.upper())
    known = [one.removeprefix(_ENVIRONMENT) for one in (*_OF_ENVIRONMENT, UNTIL, REPLAY)]
    close = get_close_matches(name, known, n=1, cutoff=0.9)
    if close:
        return f"there is no such setting; did you mean {_ENVIRONMENT}{close[0]}?"
    key = f"{_PREFIX}{name.lower()}"
    try:
        GateSettings.from_vars({key: None})
    except ConfigError:
        return ""  # the user's own
    return f"this setting is not read from the environment; set the var {key}"


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the vars that environment variables set: `wap_branch` for ``SPARKWAP_BRANCH``, etc."""
    return {var: environment[key] for key, var in _OF_ENVIRONMENT.items() if environment.get(key)}


def table_names(value: object) -> tuple[Name, ...]:
    """Read `wap_writes` in the config of a model: a name, or a list of names.

    Raises:
        ConfigError: A name is not the name of a table with its schema.
    """
    try:
        return _tables(value)
    except ValueError as problem:
        raise ConfigError(
            f"wap_writes: {_complaint(value, problem, 'a list of names: schema.table')}. Nothing "
            "was sent to Spark. Correct it in the config of the model, and run again."
        ) from None


class _Reader:
    """Reads keys one by one, and collects the problems until the end."""

    def __init__(self, variables: Mapping[str, object]) -> None:
        self._variables = variables
        self._known: list[str] = []
        self._problems: list[str] = []

    def read(self, key: str, parse: Callable[[object], _T], legal: str | None) -> _T | None:
        """Return the parsed value of `key`; None if it has no value or an illegal one."""
        self._known.append(key)
        value = self._variables.get(key)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as problem:
            self._problems.append(f"{key}: {_complaint(value, problem, legal)}")
            return None

    def fill(self, kind: type[_T]) -> _T:
        """Return settings with the given values; a field without value has its default."""
        found = {one.name: self._field(one) for one in fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in found.items() if value is not None})

    def _field(self, one: Field[Any]) -> Any:
        if isinstance(one.type, type) and is_dataclass(one.type):
            return self.fill(one.type)
        if "rule" in one.metadata:
            parse, legal = one.metadata["rule"]
        elif one.type is bool:
            parse, legal = _flag, "true, false"
        elif get_origin(one.type) is Literal:
            options = get_args(one.type)
            parse, legal = _one_of({text: text for text in options}), ", ".join(options)
        else:
            return None  # `GateSettings.from_vars` reads it.
        return self.read(one.metadata.get("key") or f"{_PREFIX}{one.name}", parse, legal)

    def finish(self) -> None:
        """Raise one error with all problems, including unknown keys."""
        self._problems.extend(self._unknown(key) for key in self._variables)
        problems = [problem for problem in self._problems if problem]
        if problems:
            raise ConfigError(
                "The vars of sparkwap have errors; nothing was run.\n  "
                + "\n  ".join(problems)
                + "\nCorrect them in dbt_project.yml (vars:), in --vars, or in the environment "
                "(SPARKWAP_BRANCH and so on), and run again."
            )

    def _unknown(self, key: object) -> str:
        if not isinstance(key, str) or not key.startswith(_PREFIX) or key in self._known:
            return ""
        close = get_close_matches(key, self._known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"legal: {', '.join(sorted(self._known))}"
        return f"{key}: there is no such setting; {hint}"


def _complaint(value: object, problem: ValueError, legal: str | None) -> str:
    if legal is None:
        return str(problem)
    detail = f" ({problem})" if str(problem) else ""
    return f"{value!r} is not allowed{detail}; legal: {legal}"


def settings_of(raw: Mapping[str, Any], given: Mapping[str, Any]) -> GateSettings:
    """Return the gate's settings as in a run.

    Args:
        raw: ``dbt_project.yml`` unrendered; dbt does not render Jinja in vars either.
    """
    variables = raw.get("vars") or {}
    own = variables.get(str(raw.get("name"))) or {}
    # A mapping contains the vars of the package of that name, except `wap_alerts`.
    scoped = {k: v for k, v in variables.items() if not isinstance(v, dict) or k == "wap_alerts"}
    return GateSettings.from_vars({**scoped, **own, **given})
