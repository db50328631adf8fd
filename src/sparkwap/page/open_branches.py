"""Open audit branches and items that need attention, with reasons and next commands. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sparkwap.core import next_command
from sparkwap.core.text import counted
from sparkwap.ledger.records import time_of
from sparkwap.page.comparison import TableComparison
from sparkwap.page.formats import format_status
from sparkwap.page.run_history import RunOverview

Row = Mapping[str, Any]

_ORDER = {"rejected": 0, "held": 1}
_TROUBLE = {
    "died": "died",
    "rolled back": "was rolled back",
    "partly rolled back": "was rolled back in part",
}


def next_commands(
    branch: str, verdicts: Collection[str], loaded: bool = False
) -> list[tuple[str, str]]:
    """Return the purpose and text of the commands that continue from an open branch.

    Args:
        loaded: Whether a program other than dbt wrote a table of it, so no build can repair it.
    """
    found = []
    if not verdicts or ("rejected" in verdicts and not loaded):
        found.append(("build again after a fix", next_command.dbt("build", branch=branch)))
    if verdicts and "rejected" not in verdicts:
        found.append(("run the tests again and publish", next_command.dbt("test", branch=branch)))
        found.append(("publish what was audited", next_command.operation("wap_publish", branch)))
    found.append(("show every row that differs", next_command.operation("wap_diff", branch)))
    found.append(("discard the branch", next_command.operation("wap_discard", branch)))
    return found


def publish_blocker(verdicts: Collection[str | None], in_use: bool) -> str:
    """Return the reason why an open branch cannot be published now; empty if it may be."""
    if in_use:
        return "A run is building on this branch. Wait until it has ended."
    if not verdicts or None in verdicts:
        return (
            "The run did not end, so the gate gave no verdict. Build again, or discard the branch."
        )
    if "rejected" in verdicts:
        return (
            "The gate has rejected a table. Fix the cause above and build again, or discard the "
            "branch."
        )
    return ""


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """An item that needs a person; ``view`` is the view of the page with the details."""

    at: datetime | None
    what: str
    view: str


def attention_items(
    branches: Iterable[tuple[str, datetime | None, Collection[str | None], bool]],
    found: Iterable[RunOverview],
    waiting: Iterable[tuple[str, int]],
) -> list[AttentionItem]:
    """Return the items that need a person, newest first; items without a time come last.

    Args:
        branches: Name, time, verdicts of each open branch, and whether a run is using it.
        waiting: Tables with their number of rows in quarantine.
    """
    items = []
    for name, since, verdicts, in_use in branches:
        if not in_use:
            worst = "rejected" if "rejected" in verdicts else "held"
            state = worst if verdicts and None not in verdicts else "open: its run did not end"
            items.append(AttentionItem(since, f"The branch {name} is {state}", "Branches"))
    items += [
        AttentionItem(run.started, f"The run {run.short} ({run.command}) {verb}", "Runs")
        for run in found
        if (verb := _TROUBLE.get(run.outcome))
    ]
    items += [
        AttentionItem(None, f"{counted(rows, 'row')} of {table} in quarantine", "Quarantine")
        for table, rows in waiting
        if rows
    ]
    return sorted(items, key=lambda item: time_of(item.at), reverse=True)


def branch_rows(
    nodes: Iterable[Row], differences: Iterable[TableComparison]
) -> list[dict[str, Any]]:
    """Return the tables of an open branch: verdict, rows and columns against ``main``.

    Args:
        nodes: The branch's latest rows in the ledger's ``nodes``.
        differences: The branch compared with ``main``.
    """
    verdicts = {f"{row['schema']}.{row['name']}": row["verdict"] for row in nodes}
    rows = sorted(differences, key=lambda t: (_ORDER.get(verdicts.get(t.name, ""), 2), t.name))
    return [
        {
            "verdict": format_status(verdicts.get(table.name) or "none: its run did not end"),
            "table": table.name,
            "rows on main": table.old.rows if table.old else None,
            "rows here": table.new.rows if table.new else None,
            "change": table.change,
            "written": table.written,
        }
        for table in rows
    ]


def unpublished_reasons(
    nodes: Iterable[Row], reasons: Mapping[str, str]
) -> list[tuple[str, list[str]]]:
    """Return each reason why tables are not published, with its tables; rejected tables first.

    Args:
        nodes: Rows of the ledger's ``nodes``.
        reasons: The reason of a node without personal values, by node id.
    """
    found: dict[str, list[str]] = {}
    for row in sorted(nodes, key=lambda row: (_ORDER.get(row["verdict"], 2), row["name"] or "")):
        reason = reasons.get(row["node_id"], row["reason"] or "")
        if reason and row["verdict"] in _ORDER:
            found.setdefault(reason, []).append(f"{row['schema']}.{row['name']}")
    return list(found.items())
