"""Leases in the catalog: which runs live, for everyone who shares the catalog.

A lease is a property of the ledger's namespace, so that it needs no table of its own, is seen from
every machine, and costs one small statement to renew. All times are by the clock of the catalog's
database: machines whose own clocks differ agree on them. (SQLite has the clock of the one machine
that its file is on.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sparkwap.catalog.rows import Rows

NAMESPACE = "wap_ledger"
TTL_SECONDS = 15 * 60
"""How long a lease lives that nobody renews: many times the pause between two renewals."""

_PREFIX = "wap.lease."


@dataclass(frozen=True, slots=True)
class Lease:
    """That a run is at work on an audit branch.

    Attributes:
        run_id: The run.
        branch: Its audit branch.
        command: What it was called by: ``build``, ``wap_publish``, ...
        pid: Its process.
        process_started: When that process was started, in seconds since the epoch by its machine's
            clock, as process ids are given out again.
        host: The name of its machine, for people.
        machine: What tells machines and containers apart; see `sparkwap.lease.this_machine`.
        since: When it began, in seconds since the epoch, by the catalog's clock.
        renewed: When it was last heard of, likewise.
    """

    run_id: str
    branch: str
    command: str
    pid: int
    process_started: float
    host: str
    machine: str
    since: float = 0.0
    renewed: float = 0.0

    def expired(self, now: float) -> bool:
        """Whether its run has not been heard of for so long that it counts as dead."""
        return now - self.renewed > TTL_SECONDS

    @property
    def began(self) -> datetime:
        """`since` as a time."""
        return datetime.fromtimestamp(self.since, UTC)

    @property
    def last_heard(self) -> datetime:
        """`renewed` as a time."""
        return datetime.fromtimestamp(self.renewed, UTC)


class Leases:
    """The leases of a catalog; safe for use by several threads and machines.

    Args:
        rows: The catalog's database.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def now(self) -> float:
        """Seconds since the epoch, by the catalog's clock."""
        with self._rows.engine.connect() as connection:
            return self._rows.clock(connection)

    def take(self, lease: Lease) -> Lease:
        """Write a lease; one of the same run is replaced.

        Returns:
            The lease with its times.
        """
        self._rows.ensure_schema(NAMESPACE)
        with self._rows.transaction() as connection:
            now = self._rows.clock(connection)
            taken = replace(lease, since=now, renewed=now)
            self._rows.put_property(connection, NAMESPACE, _key(lease.run_id), _dump(taken))
        return taken

    def renew(self, lease: Lease) -> Lease | None:
        """Say that the run is still at work.

        Returns:
            The lease with its new time; None if somebody has taken it away.
        """
        with self._rows.transaction() as connection:
            renewed = replace(lease, renewed=self._rows.clock(connection))
            key = _key(lease.run_id)
            if not self._rows.change_property(connection, NAMESPACE, key, _dump(renewed)):
                return None
        return renewed

    def release(self, run_id: str) -> None:
        """Take a lease away; nothing happens if there is none."""
        with self._rows.transaction() as connection:
            self._rows.drop_property(connection, NAMESPACE, _key(run_id))

    def all(self, connection: Connection | None = None) -> list[Lease]:
        """All leases, oldest first, dead ones too.

        Args:
            connection: A transaction to read in; a connection of its own if there is none.
        """
        found = self._rows.schema_properties(NAMESPACE, connection)
        leases = [_load(value) for key, value in found.items() if key.startswith(_PREFIX)]
        return sorted((one for one in leases if one is not None), key=lambda one: one.since)

    def guard(self, check: Callable[[list[Lease], float], None]) -> Callable[[Connection], None]:
        """A check of the leases as they are in a transaction, for `Staged.guard`.

        Args:
            check: Takes the leases and the time, and raises to stop the transaction.
        """

        def guard(connection: Connection) -> None:
            check(self.all(connection), self._rows.clock(connection))

        return guard


def _key(run_id: str) -> str:
    return f"{_PREFIX}{run_id}"


def _dump(lease: Lease) -> str:
    return json.dumps(asdict(lease), separators=(",", ":"))


def _load(value: str) -> Lease | None:
    try:
        return Lease(**json.loads(value))
    except (TypeError, ValueError):
        # Written by another version: whatever it says, it says it no longer once that run ends.
        return None
