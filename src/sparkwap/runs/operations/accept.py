"""``wap_accept``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sparkwap.catalog import LedgerRows
from sparkwap.core import next_command
from sparkwap.core.arguments import argument
from sparkwap.core.caller import this_actor
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import counted, some_of
from sparkwap.gate.thresholds import accepting
from sparkwap.runs.operations.context import Context, Operation

_OF_TEST = ("branch", "test_id", "test_name", "severity", "failures", "audited")


@dataclass(frozen=True, kw_only=True)
class Accept(Operation):
    """Accept the failing rows of a test as correct, so that the tables can be published."""

    name: ClassVar = "wap_accept"
    branch: str | None = argument("the audit branch whose test failed", default=None)
    test: str | None = argument(
        "the name of the failing test, as in the summary, or its id", default=None
    )
    reason: str = argument("why the rows are correct", default="")
    by: str = argument(
        "who accepts them; by default, SPARKWAP_ACTOR, or the user of CI or of this machine",
        default="",
    )
    until: str | None = argument(
        "the last day (YYYY-MM-DD, UTC) on which as many failing rows are accepted on any branch; "
        "by default, they are accepted on this branch only, until it is published or discarded",
        default=None,
    )

    def operate(self, gate: Context) -> Iterable[str]:
        one = self.open_branch(gate.lake.branches.all(), self.branch)
        history = gate.lake.ledger.branch_history(one.branch)
        failing = [
            test
            for test in history.tests
            if test["status"] == "fail"
            and accepting(test["severity"], test["failures"] or 0) is not None
        ]
        row = self._failing_test(failing)
        reason = " ".join(self.reason.split())
        if not reason:
            raise self.refused("reason is missing")
        who = self.by.strip() or this_actor()
        accepted = {
            **{key: row[key] for key in _OF_TEST},
            "run_id": gate.run_id,
            "accepted_by": who,
            "reason": reason,
            "accepted_at": gate.lake.ledger.time_on(one.branch),
            "until": self._end(datetime.now(UTC)),
            "tables": {
                node["node_id"]: f"{node['schema']}.{node['name']}"
                for node in history.nodes
                if node["node_id"] in dict(row["audited"] or ())
            },
        }
        gate.lake.ledger.append(LedgerRows("acceptances", [accepted]))
        rows = counted(row["failures"], "failing row")
        where = f"on any branch until {self.until}" if self.until else f"on {one.branch}"
        yield (
            f"Accepted by {who}: up to {rows} of test {row['test_name']}, {where}. Readers of "
            "main see no change yet."
        )
        tables = {node["node_id"]: (node["schema"], node["name"]) for node in history.nodes}
        valid = gate.lake.ledger.acceptances(one.branch, tables.get)
        left = [
            test["test_name"]
            for test in failing
            if test["failures"] > valid.get(test["test_id"], {"failures": -1})["failures"]
        ]
        if left:
            yield f"  Still failing: {some_of(left)}"
            also = next_command.operation(self.name, one.branch, test=left[0], reason="<why>")
            yield f"  Next: accept this one, too   {also}"
            yield "        or repair what it found, and build again"
        elif all(node["status"] == "built" for node in history.nodes):
            publish = next_command.operation("wap_publish", one.branch)
            yield f"  Next: publish it as audited   {publish}"
        else:
            yield "  Next: build the skipped nodes, in the folder of the run   dbt retry"
            again = next_command.dbt("build", branch=one.branch)
            yield f"        or in another folder                               {again}"

    def _failing_test(self, failing: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        found = [row for row in failing if self.test in (row["test_name"], row["test_id"])]
        if len(found) == 1:
            return found[0]
        if self.test is None:
            problem = "test is missing"
        elif found:
            problem = f"{len(found)} tests have the name {self.test!r}; give the whole id"
        else:
            problem = f"no test {self.test!r} has failed on this branch by a number of rows"
        known = [f"  {row['test_id']}" for row in found or failing] or ["  none"]
        head = [str(self.refused(problem)), "Tests that failed and can be accepted:"]
        raise ConfigError("\n".join([*head, *known]))

    def _end(self, now: datetime) -> datetime | None:
        if self.until is None:
            return None
        try:
            end = datetime.strptime(self.until, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
        except (ValueError, OverflowError):
            legal = "YYYY-MM-DD before 9999-12-31"
            raise self.refused(f"until is {self.until!r}, but must be {legal}") from None
        if end <= now:
            raise self.refused(f"until is {self.until}, which is in the past")
        return end
