"""The names of a run's branches, schemas and tags.

All names are derived from the run id and the audit branch. So a later command (a retry, a
`wap_discard`, a sweep) finds the objects of a run without a list of them.
"""

import re
from collections.abc import Iterable
from hashlib import sha256

from sparkwap.core.errors import ConfigError

BRANCH_RULE = (
    "a lower-case letter, then up to 63 lower-case letters, digits or underscores; "
    "no double underscore; not 'main'; not beginning with 'wap_base_', 'wap_pub_' or 'wap_undone_'"
)
"""The rule for names of audit branches, for messages."""

_BRANCH = re.compile(r"[a-z][a-z0-9_]{0,63}")
SIDE_SEPARATOR = "__"
"""The separator between schema and audit branch in the name of a side schema."""

FORMER_BRANCH = "wap_former"
"""The branch of side schemas in which a rollback keeps former tables until their names are free."""

LEDGER_SCHEMA = "wap_ledger"
"""The schema of the ledger's tables; leases are properties of it."""

_PUBLISH_TAG_PREFIX = "wap_pub_"
_BASE_TAG_PREFIX = "wap_base_"
_ABORT_TAG_PREFIX = "wap_undone_"
_RUN_BRANCH = re.compile(r"wap_[0-9a-f]{8}")
_PUBLISH_TAG = re.compile(r"wap_pub_[0-9a-f]{8}")
_THROW_AWAY = re.compile(r"wap_unit_([0-9a-f]{8})_[0-9a-f]{32}")
_RUN_FOLDER = re.compile(r".+-([0-9a-f]{8})")
_DIFF_FOLDER = re.compile(r"wap_diff-[0-9a-f]{32}")


def short_run_id(run_id: str) -> str:
    """Return the first eight hex digits of a run id, a UUID with or without hyphens."""
    digits = run_id.strip().replace("-", "")[:8].lower()
    if not re.fullmatch(r"[0-9a-f]{8}", digits):
        raise ConfigError(
            f"{run_id!r} is not a run id: a run id is dbt's invocation id, a UUID such as "
            "1a2b3c4d-0000-4000-8000-000000000000."
        )
    return digits


def branch_problem(name: str) -> str | None:
    """Return the reason why `name` cannot be an audit branch, or None if it can.

    The rule is stricter than Iceberg's: the name becomes part of a schema name after `__`, and
    branches and tags of a table share one namespace.
    """
    if name == "main":
        return "'main' is the branch that readers see"
    if SIDE_SEPARATOR in name:
        return "a double underscore separates schema and branch in the names of side schemas"
    if name.startswith((_BASE_TAG_PREFIX, _PUBLISH_TAG_PREFIX, _ABORT_TAG_PREFIX)):
        return "names beginning with 'wap_base_', 'wap_pub_' or 'wap_undone_' are tags of sparkwap"
    if not _BRANCH.fullmatch(name):
        return "it has characters that are not allowed, or is too long or empty"
    return None


def audit_branch(run_id: str, given: str | None) -> str:
    """Return the audit branch of a run.

    Args:
        given: The user's name for the branch (dbt var `wap_branch`); None or an empty text for
            the run's own branch, `wap_<short run id>`.
    """
    if not given:
        return f"wap_{short_run_id(run_id)}"
    problem = branch_problem(given)
    if problem is not None:
        raise ConfigError(
            f"{given!r} cannot be an audit branch: {problem}. Nothing was written. "
            f"Allowed for wap_branch: {BRANCH_RULE}."
        )
    return given


def side_schema(schema: str, branch: str) -> str:
    """Return the side schema of `schema`, for candidates that cannot be on a branch."""
    return f"{schema}{SIDE_SEPARATOR}{branch}"


def split_side_schema(name: str, branch: str) -> str | None:
    """Return the schema of the side schema `name` on `branch`; None if it is not a side schema."""
    schema = name.removesuffix(f"{SIDE_SEPARATOR}{branch}")
    return schema if schema and schema != name else None


def throw_away_schema(run_id: str, token: str, branch: str) -> str:
    """Return the side schema of a throw-away table, which a unit test compares with its rows.

    ``token`` has 32 hex digits, unique for the test.
    """
    return side_schema(f"wap_unit_{short_run_id(run_id)}_{token}", branch)


def run_of_throw_away(side: str, branch: str) -> str | None:
    """Return the short run id in a schema of `throw_away_schema`; None for any other schema."""
    found = _THROW_AWAY.fullmatch(split_side_schema(side, branch) or "")
    return found[1] if found else None


def live_sql(sql: str, branch: str, run_id: str) -> str:
    """Return a statement without the run id, with live schemas for side schemas of `branch`."""
    side = re.compile(rf"{SIDE_SEPARATOR}{re.escape(branch)}(?=[`\"]?\s*\.)")
    return side.sub("", sql).replace(run_id, "")


def require_own(
    tables: Iterable[tuple[str, str]], standing: Iterable[tuple[str, str]] = ()
) -> None:
    """Refuse names of a project's tables and views that are reserved or ambiguous.

    The ledger's schema is reserved. Names that differ in case only are ambiguous: the catalog is
    case-sensitive, but the SQL of some readers is not, so a reader could get the rows of the other
    table.

    Args:
        standing: Schema and name of other tables and views of the lake.
    """
    tables = set(tables)
    taken = [f"{schema}.{name}" for schema, name in tables if schema.lower() == LEDGER_SCHEMA]
    if taken:
        raise ConfigError(
            f"{', '.join(sorted(taken))} would be in {LEDGER_SCHEMA}, the schema of sparkwap's "
            "own tables. Nothing was built, and readers of main see no change. Set another "
            "`schema` for each."
        )
    same: dict[tuple[str, str], set[str]] = {}
    labels = {name: ".".join(name) for name in tables}
    labels |= {name: f"{'.'.join(name)} (which is in the lake)" for name in standing}
    for name, label in labels.items():
        same.setdefault(folded(name), set()).add(label)
    alike = [sorted(found) for found in same.values() if len(found) > 1]
    if alike:
        pairs = "; ".join(" and ".join(found) for found in sorted(alike))
        raise ConfigError(
            f"Names differ in case only: {pairs}. Readers could confuse them. Nothing was built, "
            "and readers of main see no change. Set another `alias` or schema for one of them, or "
            "drop an unused table of the lake in Spark."
        )


def folded(identifier: tuple[str, str]) -> tuple[str, str]:
    """Return the name of a table or view for case-insensitive readers."""
    return identifier[0].lower(), identifier[1].lower()


def former_name(name: str, key: str) -> str:
    """Return the name beside the own one of a table, under which a former one is set aside."""
    return f"{name}__{FORMER_BRANCH}_{sha256(key.encode()).hexdigest()[:8]}"


def publish_tag(run_id: str) -> str:
    """Return the tag that a publish sets on each snapshot, the receipt: `wap_pub_<short>`."""
    return f"{_PUBLISH_TAG_PREFIX}{short_run_id(run_id)}"


def base_tag(branch: str) -> str:
    """Return the tag that keeps the base of an audit branch alive: `wap_base_<branch>`."""
    return f"{_BASE_TAG_PREFIX}{branch}"


def abort_tag(publish_id: str) -> str:
    """Return the tag that blocks an undone publish of a table: `wap_undone_<publish id>`."""
    return f"{_ABORT_TAG_PREFIX}{publish_id}"


def publish_of_abort_tag(tag: str) -> str | None:
    """Return the publish id of a tag of `abort_tag`; None for any other tag."""
    publish_id = tag.removeprefix(_ABORT_TAG_PREFIX)
    return publish_id if publish_id != tag else None


def is_run_branch(branch: str) -> bool:
    """Return whether an audit branch is a run's own branch, and not named by a user."""
    return _RUN_BRANCH.fullmatch(branch) is not None


def is_publish_tag(tag: str) -> bool:
    """Return whether a tag is the receipt of a publish."""
    return _PUBLISH_TAG.fullmatch(tag) is not None


def branch_of_base_tag(tag: str) -> str | None:
    """Return the audit branch of a base tag; None for any other tag."""
    branch = tag.removeprefix(_BASE_TAG_PREFIX)
    return branch if branch and branch != tag else None


def run_of_folder(name: str) -> str | None:
    """Return the short run id in a table's folder name, `<table>-<short run id>`; else None."""
    found = _RUN_FOLDER.fullmatch(name)
    return found[1] if found else None


def diff_folder(token: str) -> str:
    """Return the name of the warehouse folder with the temporary rows of a comparison.

    ``token`` has 32 hex digits, unique for the comparison.
    """
    return f"wap_diff-{token}"


def is_diff_folder(name: str) -> bool:
    """Return whether a warehouse folder belongs to a comparison; see `diff_folder`."""
    return _DIFF_FOLDER.fullmatch(name) is not None
