"""The probe: writes one row on an audit branch of its own table, and checks where the row is.

A catalog that ignores Iceberg branches, a server that drops session settings, or a session with
another catalog than the gate's writes rows to ``main`` without an error. The probe detects this on
a table without readers, before a run writes its first table.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sparkwap.catalog import Identifier, TableState
from sparkwap.core.names import LEDGER_SCHEMA

DAYS = 1
"""Days that a probe stays valid: another server may be installed under the same address."""


@dataclass(frozen=True, slots=True)
class IsolationCheck:
    """A probe of one server and catalog.

    Attributes:
        server: A text that identifies the server: host and port, or the lake.
        run_id: The run that sends the probe, eight hex digits or more.
        catalog: Name of the catalog in Spark.
    """

    server: str
    run_id: str
    catalog: str

    @property
    def branch(self) -> str:
        """The probe's branch; the ledger records the probes of a server under this name."""
        return f"wap_probe_{hashlib.sha256(self.server.encode()).hexdigest()[:8]}"

    @property
    def table(self) -> Identifier:
        """The probe's table."""
        return LEDGER_SCHEMA, f"probe_{self.run_id.replace('-', '')[:8]}"

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements to send in a session with the run's settings and the probe's branch."""
        schema, name = self.table
        return (
            f"create table `{self.catalog}`.`{schema}`.`{name}` (id int) using iceberg "
            "tblproperties ('write.wap.enabled' = 'true')",
            f"insert into `{self.catalog}`.`{schema}`.`{name}` values (1)",
        )


def problem(probe: IsolationCheck, found: TableState | None) -> str | None:
    """Return the problem in words; None if the row is only on the probe's branch.

    Args:
        found: The state of its table in the gate's catalog after the statements.
    """
    if found is None:
        return (
            "Spark and the gate do not use the same catalog: a table that Spark has created is not "
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
    """Return the message of a refused run."""
    return (
        f"{probe.server} cannot be protected: {what}. Nothing was built, and none of your tables "
        "was changed. `sparkwap doctor` lists all problems and how to fix them."
    )
