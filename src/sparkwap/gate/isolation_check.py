"""The probe: one row written on an audit branch of a table of its own, to see where it lands.

A catalog that ignores Iceberg branches, a server that drops session settings, a session on another
catalog than the gate's: each lets rows land on ``main`` without an error. The probe finds out on a
table that nobody reads, before the first real one is touched.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sparkwap.catalog import Identifier, TableState
from sparkwap.core.names import LEDGER_SCHEMA

DAYS = 1
"""A server may be set up anew under the same address, so a probe is believed for so long."""


@dataclass(frozen=True, slots=True)
class IsolationCheck:
    """A probe of one server and catalog.

    Attributes:
        server: What tells the server from others: host and port, or the lake.
        run_id: The run that probes, eight hex digits or more.
        catalog: Name of the catalog in Spark.
    """

    server: str
    run_id: str
    catalog: str

    @property
    def branch(self) -> str:
        """The probe's branch; in the ledger, what remembers that this server was probed."""
        return f"wap_probe_{hashlib.sha256(self.server.encode()).hexdigest()[:8]}"

    @property
    def table(self) -> Identifier:
        """The probe's table."""
        return LEDGER_SCHEMA, f"probe_{self.run_id.replace('-', '')[:8]}"

    @property
    def statements(self) -> tuple[str, ...]:
        """What is sent in a session of the run's settings, with the probe's branch."""
        schema, name = self.table
        return (
            f"create table `{self.catalog}`.`{schema}`.`{name}` (id int) using iceberg "
            "tblproperties ('write.wap.enabled' = 'true')",
            f"insert into `{self.catalog}`.`{schema}`.`{name}` values (1)",
        )


def problem(probe: IsolationCheck, found: TableState | None) -> str | None:
    """What is wrong, in words; None if the row landed on the probe's branch alone.

    Args:
        probe: The probe.
        found: Its table, as the gate's own catalog shows it after the statements.
    """
    if found is None:
        return (
            "Spark and the gate do not use the same catalog: a table that Spark has made is not "
            "in the catalog of the profile"
        )
    head = found.refs.get(probe.branch)
    if found.main is not None:
        kept = "ignores Iceberg branches" if head is None else "writes to main beside the branch"
        return (
            f"this catalog {kept}, or the server drops the session setting spark.wap.branch: a "
            "row written on an audit branch landed on main"
        )
    if head is None:
        return "a row written on an audit branch is nowhere in the catalog"
    return None


def refusal(probe: IsolationCheck, what: str) -> str:
    """The message of a run that is refused."""
    return (
        f"{probe.server} cannot be protected: {what}. Nothing was built, and no table of yours was "
        "touched. See what else is unsafe and how to mend it with `sparkwap doctor`."
    )
