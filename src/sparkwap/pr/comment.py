"""The comment on a pull request: the result of its audit, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sparkwap.core import next_command
from sparkwap.core.personal import CITING
from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.ledger.code import name_of
from sparkwap.ledger.records import token_of
from sparkwap.pr.standing import BranchState, Outcome, Row

LIMIT = 60_000
"""Greatest number of characters of a comment; GitHub's limit is 65,536."""

_SHOWN = 50
_CELL = 300
TITLES: Mapping[Outcome, str] = {
    "nothing": "has nothing to audit",
    "unfinished": "has an unfinished audit",
    "ready": "passed its audit",
    "held": "is held",
    "rejected": "was rejected",
    "moved": "passed its audit, and main has moved since",
    "stale": "was audited with other code",
    "published": "is published",
    "undone": "was published, and its publish was rolled back",
    "discarded": "is closed",
    "gone": "is gone: its audited tables no longer exist",
}
"""The outcomes as predicates of the branch."""

_UNSEEN = "Readers of main do not see its changes."
_SENTENCES: Mapping[Outcome, str] = {
    "nothing": "No model, seed or snapshot differs from the newest published code.",
    "unfinished": "The audit was stopped, failed before its first table, or is still running. "
    f"{_UNSEEN}",
    "ready": f"All changed tables have passed their tests on the branch. {_UNSEEN}",
    "held": f"A test did not run, or a rule of the gate holds a table. {_UNSEEN}",
    "rejected": f"A merge would not publish the branch. {_UNSEEN}",
    "moved": "Its publish was stopped, because main has changed since the audit. The next "
    f"publish builds and audits it again on main as it is now. {_UNSEEN}",
    "stale": "The branch passed an earlier audit, and this code was not audited: it differs, or "
    f"cannot be compared. The log of the job has the reason. {_UNSEEN}",
    "published": "All its changes are live.",
    "undone": "Readers of main see the tables that were rolled back as before its publish.",
    "discarded": "The branch was discarded. It has not changed main.",
    "gone": f"The ledger has an audit of tables that are no longer on the branch. {_UNSEEN}",
}
_STATUS = {"fail": "failed", "error": "could not run", "warn": "warned"}


def marker(branch: str) -> str:
    """Return a line that Markdown does not show; a job finds its old comment by it."""
    return f"<!-- sparkwap pr {branch} -->"


def render(standing: BranchState, diff: str = "", limit: int = LIMIT) -> str:
    """Return the comment.

    Messages of failed builds may contain values of rows, so the comment refers to the log instead.

    Args:
        diff: The data diff, as Markdown; no section if it is empty.
        limit: Greatest number of characters; the diff, then passed tables, are left out first.
    """
    head = [
        marker(standing.branch),
        f"### sparkwap: {_code(standing.branch)} {TITLES[standing.outcome]}",
        "",
        _SENTENCES[standing.outcome],
    ]
    tail = _next(standing)
    for shown in (_SHOWN, 10, 0):
        body = [*_tables(standing, shown), *_tests(standing, max(shown, 3))]
        text = "\n".join([*head, *body, *tail]) + "\n"
        if len(text) <= limit:
            break
    if not diff:
        return text[:limit]
    whole = "\n".join([*head, *body, "", diff.strip(), *tail]) + "\n"
    if len(whole) <= limit:
        return whole
    look = next_command.operation("wap_diff", standing.branch)
    note = f"The data diff is too long for a comment. To see it: `{look}`"
    noted = "\n".join([*head, *body, "", note, *tail]) + "\n"
    return noted if len(noted) <= limit else text[:limit]


def _tables(standing: BranchState, shown: int) -> Iterable[str]:
    if not standing.nodes or standing.outcome in ("stale", "undone", "discarded"):
        return
    order = {"rejected": 0, "held": 1, "published": 2}
    rows = sorted(standing.nodes, key=lambda row: (order[row["verdict"]], _clean(row)))
    yield from ("", "| table | built | verdict | tests passed |", "|---|---|---|---|")
    for row in rows[:shown]:
        passed, ran = _counted(row, standing.tests)
        tests = f"{passed} of {ran}" if ran else "none"
        yield f"| {_name(row)} | {_built(row)} | {_verdict(row, standing)} | {tests} |"
    if len(rows) > shown:
        yield f"| and {len(rows) - shown} more | | | |"


def _tests(standing: BranchState, shown: int) -> Iterable[str]:
    failed = [row for row in standing.tests if row["status"] in _STATUS]
    if not failed or standing.outcome in ("stale", "undone", "discarded", "nothing"):
        return
    failed.sort(key=lambda row: (row["status"] == "warn", row["test_name"]))
    yield from ("", "| test | | rows |", "|---|---|---|")
    for row in failed[:shown]:
        count = "" if row["failures"] is None else f"{row['failures']:,}"
        yield f"| {_code(row['test_name'])} | {_STATUS[row['status']]} | {count} |"
    if len(failed) > shown:
        yield f"| and {len(failed) - shown} more | | |"


def _next(standing: BranchState) -> list[str]:
    steps = next_steps(standing)
    if not steps:
        return []
    # The command comes first, so that a reader can copy the whole line.
    lines = [f"{step}   # {purpose}" for purpose, step in steps]
    return ["", "```sh", *lines, "```"]


def command(action: str, branch: str) -> str:
    """Return a command of ``sparkwap pr``."""
    return next_command.sparkwap(f"pr {action} --branch {branch}")


def next_steps(standing: BranchState) -> list[tuple[str, str]]:
    """Return purpose and command of the next steps."""
    branch = standing.branch
    audit, publish = command("audit", branch), command("publish", branch)
    close = ("discard it", command("close", branch))
    status = ("see why", next_command.operation("wap_status", branch))
    if standing.outcome in ("ready", "moved"):
        return [("when it is merged", publish), close]
    if standing.outcome == "rejected":
        rejected = (row for row in standing.nodes if row["verdict"] == "rejected")
        looks = [
            ("look at it", next_command.dbt(f'show --inline "select * from {ref}"', branch=branch))
            for ref in [_ref(row["node_id"]) for row in rejected if row["status"] == "built"][:1]
        ]
        return [*looks, ("after a fix", audit), close]
    if standing.outcome == "held":
        return [status, ("after that", audit), close]
    if standing.outcome in ("unfinished", "stale", "gone"):
        return [("audit it again", audit), close]
    if standing.outcome == "undone":
        again = next_command.operation("wap_rollback", run=standing.published_by, reopen=True)
        return [("audit it again", audit), ("or put its tables on the branch again", again)]
    if standing.published_by:
        return [("undo it", next_command.operation("wap_rollback", run=standing.published_by))]
    return []


def _ref(node_id: str) -> str:
    name, _, version = name_of(node_id).partition(".v")
    return f"{{{{ ref('{name}', v='{version}') }}}}" if version else f"{{{{ ref('{name}') }}}}"


def _verdict(row: Row, standing: BranchState) -> str:
    if row["verdict"] == "published":
        return "published"
    if _clean(row):
        return "passed"
    if standing.outcome == "moved":
        return "passed; main moved"
    # The error text of Spark or dbt after this point may quote a row.
    reason = str(row["reason"])
    cited = CITING.search(reason)
    reason = f"{reason[: cited.end(1)]}: see the log" if cited else reason
    return f"**{row['verdict']}**: {_text(reason)}"


def _clean(row: Row) -> bool:
    return row["verdict"] == "held" and row["reason"] in (None, PUBLISHING_OFF)


def _built(row: Row) -> str:
    if row["status"] != "built":
        return "not built" if row["status"] == "skipped" else str(row["status"])
    if row["how"] == "branch":
        return "on a branch of the table"
    return "new" if row["base_metadata"] is None else "beside the live table"


def _counted(row: Row, tests: Iterable[Row]) -> tuple[int, int]:
    """Return the numbers of passed tests and of all tests of a node's present candidate."""
    candidate = str(token_of(row))
    ran = [t for t in tests if (t["audited"] or {}).get(row["node_id"]) == candidate]
    return sum(t["status"] in ("pass", "warn") for t in ran), len(ran)


def _name(row: Row) -> str:
    return _code(f"{row['schema']}.{row['name']}")


def _code(text: str) -> str:
    return f"`{_text(text).replace('`', '')}`"


def _text(text: str) -> str:
    """Return a text for a cell, without markup, mentions and line breaks."""
    plain = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
    plain = plain.replace("@", "@\u200b").replace("`", "'")
    return plain if len(plain) <= _CELL else plain[: _CELL - 4] + " ..."
