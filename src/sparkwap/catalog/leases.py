"""Leases in the catalog: which runs live, for everyone who shares the catalog.

A lease is a property of the ledger's namespace, so that it needs no table of its own, is seen from
every machine, and costs one small statement to renew.

In SQL catalogs all times are by the clock of the database: machines whose own clocks differ agree
on them. (SQLite has the clock of the one machine that its file is on.) Other catalogs tell no time;
there a lease lives for so long that clocks may differ by hours.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkwap.core.names import LEDGER_SCHEMA

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from sqlalchemy import Connection

    from sparkwap.catalog.sql_backend import SqlBackend

TTL_SECONDS = 15 * 60
"""How long a lease lives that nobody renews: many times the pause between two renewals."""

TTL_WITHOUT_A_CLOCK_SECONDS = 24 * 60 * 60
"""The same where the times are by the clocks of several machines."""

_PREFIX = "wap.lease."

Guard = Callable[["Connection | None"], None]
Check = Callable[[list["Lease"], float], None]


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
        machine: What tells machines and containers apart; see `lease.this_machine`.
        since: When it began, in seconds since the epoch, by the catalog's clock.
        renewed: When it was last heard of, likewise.
        ttl: How many seconds it lives without being renewed.
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
    ttl: float = TTL_SECONDS

    def expired(self, now: float) -> bool:
        """Whether its run has not been heard of for so long that it counts as dead."""
        return now - self.renewed > self.ttl

    @property
    def began(self) -> datetime:
        """`since` as a time."""
        return datetime.fromtimestamp(self.since, UTC)

    @property
    def last_heard(self) -> datetime:
        """`renewed` as a time."""
        return datetime.fromtimestamp(self.renewed, UTC)


class Leases(ABC):
    """The leases of a catalog; safe for use by several threads and machines."""

    @abstractmethod
    def now(self) -> float:
        """Seconds since the epoch, by the catalog's clock where it has one."""

    @abstractmethod
    def take(self, lease: Lease) -> Lease:
        """Write a lease; one of the same run is replaced.

        Returns:
            The lease with its times.
        """

    @abstractmethod
    def renew(self, lease: Lease) -> Lease | None:
        """Say that the run is still at work.

        Returns:
            The lease with its new time; None if somebody has taken it away.
        """

    @abstractmethod
    def release(self, run_id: str) -> None:
        """Take a lease away; nothing happens if there is none."""

    @abstractmethod
    def all(self) -> list[Lease]:
        """All leases, oldest first, dead ones too."""

    @abstractmethod
    def guard(self, check: Check) -> Guard:
        """A check of the leases for `Staged.guard`, in the transaction where there is one.

        Args:
            check: Takes the leases and the time, and raises to stop the transaction.
        """


class SqlLeases(Leases):
    """Leases by the clock of a SQL catalog's database.

    Args:
        rows: The database.
    """

    def __init__(self, rows: SqlBackend) -> None:
        self._rows = rows

    def now(self) -> float:
        with self._rows.engine.connect() as connection:
            return self._rows.clock(connection)

    def take(self, lease: Lease) -> Lease:
        self._rows.ensure_schema(LEDGER_SCHEMA)
        with self._rows.transaction() as connection:
            now = self._rows.clock(connection)
            taken = replace(lease, since=now, renewed=now)
            self._rows.put_property(connection, LEDGER_SCHEMA, _key(lease.run_id), _dump(taken))
        return taken

    def renew(self, lease: Lease) -> Lease | None:
        with self._rows.transaction() as connection:
            renewed = replace(lease, renewed=self._rows.clock(connection))
            key = _key(lease.run_id)
            if not self._rows.change_property(connection, LEDGER_SCHEMA, key, _dump(renewed)):
                return None
        return renewed

    def release(self, run_id: str) -> None:
        with self._rows.transaction() as connection:
            self._rows.drop_property(connection, LEDGER_SCHEMA, _key(run_id))

    def all(self) -> list[Lease]:
        return _leases(self._rows.schema_properties(LEDGER_SCHEMA))

    def guard(self, check: Check) -> Guard:
        def guard(connection: Connection | None) -> None:
            properties = self._rows.schema_properties(LEDGER_SCHEMA, connection)
            check(_leases(properties), self._rows.clock(connection) if connection else self.now())

        return guard


class CatalogLeases(Leases):
    """Leases in any catalog whose namespaces have properties, by the machines' own clocks.

    Args:
        catalog: PyIceberg's catalog; called when it is needed first.
    """

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def now(self) -> float:
        return time.time()

    def take(self, lease: Lease) -> Lease:
        now = self.now()
        taken = replace(lease, since=now, renewed=now, ttl=TTL_WITHOUT_A_CLOCK_SECONDS)
        self._catalog().create_namespace_if_not_exists(LEDGER_SCHEMA)
        self._put(taken)
        return taken

    def renew(self, lease: Lease) -> Lease | None:
        if _key(lease.run_id) not in self._properties():
            return None
        renewed = replace(lease, renewed=self.now())
        self._put(renewed)
        return renewed

    def release(self, run_id: str) -> None:
        if _key(run_id) in self._properties():
            self._catalog().update_namespace_properties(LEDGER_SCHEMA, removals={_key(run_id)})

    def all(self) -> list[Lease]:
        return _leases(self._properties())

    def guard(self, check: Check) -> Guard:
        def guard(_connection: Connection | None) -> None:
            check(self.all(), self.now())

        return guard

    def _put(self, lease: Lease) -> None:
        updates = {_key(lease.run_id): _dump(lease)}
        self._catalog().update_namespace_properties(LEDGER_SCHEMA, updates=updates)

    def _properties(self) -> Mapping[str, str]:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            found: Mapping[str, str] = self._catalog().load_namespace_properties(LEDGER_SCHEMA)
        except NoSuchNamespaceError:
            return {}
        return found


def _leases(properties: Mapping[str, str]) -> list[Lease]:
    found = [_load(value) for key, value in properties.items() if key.startswith(_PREFIX)]
    return sorted((one for one in found if one is not None), key=lambda one: one.since)


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
