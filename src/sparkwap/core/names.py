"""The names a run gives to branches, schemas and tags.

All of them are derived from the run id and the audit branch, so that any later call (a retry, a
`wap_discard`, a sweep) finds what a run left behind without having been told.
"""

import re
from collections.abc import Iterable

from sparkwap.core.errors import ConfigError

BRANCH_RULE = (
    "a lower-case letter, then up to 63 lower-case letters, digits or underscores; "
    "no double underscore; not 'main'; not beginning with 'wap_base_', 'wap_pub_' or 'wap_undone_'"
)
"""What `audit_branch` accepts, in words for messages."""

_BRANCH = re.compile(r"[a-z][a-z0-9_]{0,63}")
SIDE_SEPARATOR = "__"
"""What stands between schema and audit branch in the name of a side schema."""

LEDGER_SCHEMA = "wap_ledger"
"""The schema of the ledger's tables; leases are properties of it."""

_PUBLISH_TAG_PREFIX = "wap_pub_"
_BASE_TAG_PREFIX = "wap_base_"
_ABORT_TAG_PREFIX = "wap_undone_"
_RUN_BRANCH = re.compile(r"wap_[0-9a-f]{8}")
_PUBLISH_TAG = re.compile(r"wap_pub_[0-9a-f]{8}")
_RUN_FOLDER = re.compile(r".+-([0-9a-f]{8})")
_DIFF_FOLDER = re.compile(r"wap_diff-[0-9a-f]{32}")


def short_run_id(run_id: str) -> str:
    """Return the first eight hex digits of a run id, in lower case.

    Args:
        run_id: dbt's invocation id, a UUID with or without hyphens.

    Raises:
        ConfigError: The text does not begin with eight hex digits.
    """
    digits = run_id.strip().replace("-", "")[:8].lower()
    if not re.fullmatch(r"[0-9a-f]{8}", digits):
        raise ConfigError(
            f"{run_id!r} is not a run id: a run id is dbt's invocation id, a UUID such as "
            "1a2b3c4d-0000-4000-8000-000000000000."
        )
    return digits


def branch_problem(name: str) -> str | None:
    """Return why `name` cannot be an audit branch, or None when it can.

    The rule is stricter than Iceberg's: the name becomes part of a schema name, where `__`
    separates the two, and branches and tags of a table share one set of names.
    """
    if name == "main":
        return "'main' is what readers see, so it cannot be an audit branch"
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
        run_id: dbt's invocation id.
        given: The user's name for the branch (dbt var `wap_branch`), or None or an empty text for
            a branch of the run's own, `wap_<short run id>`.

    Raises:
        ConfigError: The given name breaks `BRANCH_RULE`, or the run id is not one.
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
    """Return the side schema of `schema`: where a run puts what cannot live on a branch."""
    return f"{schema}{SIDE_SEPARATOR}{branch}"


def split_side_schema(name: str, branch: str) -> str | None:
    """Return the schema whose side schema on `branch` is called `name`; None if it is not one."""
    schema = name.removesuffix(f"{SIDE_SEPARATOR}{branch}")
    return schema if schema and schema != name else None


def live_sql(sql: str, branch: str, run_id: str) -> str:
    """Return a statement without the run id, side schemas of `branch` as the live ones."""
    side = re.compile(rf"{SIDE_SEPARATOR}{re.escape(branch)}(?=[`\"]?\s*\.)")
    return side.sub("", sql).replace(run_id, "")


def require_own(
    tables: Iterable[tuple[str, str]], standing: Iterable[tuple[str, str]] = ()
) -> None:
    """Refuse names of a project's tables and views that are not, or not clearly, its own.

    The schema of the ledger is sparkwap's. And a reader must not take one name for another: the
    catalog keeps names to the letter, while SQL of some readers folds their case, so that rows
    audited under one of two names would be read under the other.

    Args:
        tables: Schema and name of all that the project builds.
        standing: Those of other tables and views of the lake.

    Raises:
        ConfigError: One is in the ledger's schema, or two differ in case only.
    """
    tables = set(tables)
    taken = [f"{schema}.{name}" for schema, name in tables if schema.lower() == LEDGER_SCHEMA]
    if taken:
        raise ConfigError(
            f"{', '.join(sorted(taken))} would stand in {LEDGER_SCHEMA}, the schema of sparkwap's "
            "own tables. Nothing was built, and readers of main see no change. Give each another "
            "`schema`."
        )
    same: dict[tuple[str, str], set[str]] = {}
    told_as = {name: ".".join(name) for name in tables}
    told_as |= {name: f"{'.'.join(name)} (which stands in the lake)" for name in standing}
    for name, told in told_as.items():
        same.setdefault(folded(name), set()).add(told)
    alike = [sorted(found) for found in same.values() if len(found) > 1]
    if alike:
        told = "; ".join(" and ".join(found) for found in sorted(alike))
        raise ConfigError(
            f"Names differ in case only: {told}. A reader could take one for the other. Nothing "
            "was built, and readers of main see no change. Give one of them another `alias` or "
            "schema; what stands in the lake and nobody reads any more can be dropped, in Spark."
        )


def folded(identifier: tuple[str, str]) -> tuple[str, str]:
    """Return what readers that fold the case of names take a table or view for."""
    return identifier[0].lower(), identifier[1].lower()


def publish_tag(run_id: str) -> str:
    """Return the tag that a publish leaves on each snapshot, the receipt: `wap_pub_<short>`."""
    return f"{_PUBLISH_TAG_PREFIX}{short_run_id(run_id)}"


def base_tag(branch: str) -> str:
    """Return the tag that keeps the base of an audit branch alive: `wap_base_<branch>`."""
    return f"{_BASE_TAG_PREFIX}{branch}"


def abort_tag(publish_id: str) -> str:
    """Return the tag that keeps a table from an undone publish: `wap_undone_<publish id>`."""
    return f"{_ABORT_TAG_PREFIX}{publish_id}"


def publish_of_abort_tag(tag: str) -> str | None:
    """Return the id of the publish that a tag keeps a table from; None if it is no such tag."""
    publish_id = tag.removeprefix(_ABORT_TAG_PREFIX)
    return publish_id if publish_id != tag else None


def is_run_branch(branch: str) -> bool:
    """Tell whether an audit branch is a run's own, and not one that a user has named."""
    return _RUN_BRANCH.fullmatch(branch) is not None


def is_publish_tag(tag: str) -> bool:
    """Tell whether a tag is the receipt of a publish."""
    return _PUBLISH_TAG.fullmatch(tag) is not None


def branch_of_base_tag(tag: str) -> str | None:
    """Return the audit branch whose base a tag keeps; None for any other tag."""
    branch = tag.removeprefix(_BASE_TAG_PREFIX)
    return branch if branch and branch != tag else None


def run_of_folder(name: str) -> str | None:
    """Return the short id of the run that made a table's folder, `<table>-<short run id>`."""
    found = _RUN_FOLDER.fullmatch(name)
    return found[1] if found else None


def diff_folder(token: str) -> str:
    """Return the name of a folder in the warehouse in which a comparison keeps rows for a while.

    Args:
        token: 32 hex digits that no other comparison has.
    """
    return f"wap_diff-{token}"


def is_diff_folder(name: str) -> bool:
    """Tell whether a folder in the warehouse is one of a comparison's; see `diff_folder`."""
    return _DIFF_FOLDER.fullmatch(name) is not None
