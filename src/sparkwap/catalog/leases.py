"""Leases in the catalog: they show which runs are alive to all users of the catalog.

A lease is a property of the ledger's namespace. So it needs no table, is visible from every
machine, and one small statement renews it. Only in a metastore it is an entry of its own
(`Metastore.marks`), because properties that two writers change at once are lost there.

In SQL catalogs all times are by the clock of the database, so that machines with different clocks
agree. (SQLite has the clock of the machine with its file.) Other catalogs have no clock; there, a
lease is valid for so long that the clocks of machines may differ by hours.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog.backend import Guard
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.retry import retrying

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from sqlalchemy import Connection

    from sparkwap.catalog.metastore import Metastore
    from sparkwap.catalog.sql_backend import SqlBackend

TTL_SECONDS = 15 * 60
"""How long a lease is valid without a renewal: many times the pause between two renewals."""

TTL_WITHOUT_A_CLOCK_SECONDS = 24 * 60 * 60
"""The same if the times are by the clocks of several machines."""

_PREFIX = "wap.lease."

Check = Callable[[list["Lease"], float], None]


@dataclass(frozen=True, slots=True)
class Lease:
    """A run is at work on an audit branch.

    Attributes:
        command: The command of the run: ``build``, ``wap_publish``, ...
        process_started: The start of that process, in seconds since the epoch by its machine's
            clock. Systems reuse process ids.
        host: The name of the machine, for people.
        machine: The id of the machine or container; see `lease.this_machine`.
        since: The start of the lease, in seconds since the epoch, by the catalog's clock.
        renewed: The last renewal, likewise.
        ttl: How many seconds the lease is valid without a renewal.
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
        """Return whether the lease was not renewed for so long that its run counts as dead."""
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
        """Return seconds since the epoch, by the catalog's clock if it has one."""

    @abstractmethod
    def take(self, lease: Lease) -> Lease:
        """Write a lease, which replaces one of the same run; returns it with its times."""

    @abstractmethod
    def renew(self, lease: Lease) -> Lease | None:
        """Return the lease with a new time; None if another process has removed it."""

    @abstractmethod
    def release(self, run_id: str) -> None:
        """Remove the lease of a run, if it exists."""

    @abstractmethod
    def all(self) -> list[Lease]:
        """Return all leases, oldest first, including those of dead runs."""

    @abstractmethod
    def guard(self, check: Check) -> Guard:
        """Return a check of the leases for `Staged.guard`, in the transaction if there is one.

        ``check`` gets the leases and the time, and raises to stop the transaction.
        """


class SqlLeases(Leases):
    """Leases by the clock of a SQL catalog's database."""

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


class LeasesWithoutAClock(Leases):
    """Leases of a catalog that has no clock, by the clocks of the machines."""

    def now(self) -> float:
        return time.time()

    def take(self, lease: Lease) -> Lease:
        now = self.now()
        taken = replace(lease, since=now, renewed=now, ttl=TTL_WITHOUT_A_CLOCK_SECONDS)
        self._ensure_ledger()
        self._put(taken)
        return taken

    def renew(self, lease: Lease) -> Lease | None:
        if all(one.run_id != lease.run_id for one in self.all()):
            return None
        renewed = replace(lease, renewed=self.now())
        self._put(renewed)
        return renewed

    def guard(self, check: Check) -> Guard:
        def guard(_connection: Connection | None) -> None:
            check(self.all(), self.now())

        return guard

    @abstractmethod
    def _ensure_ledger(self) -> None:
        """Create the ledger's schema if it does not exist."""

    @abstractmethod
    def _put(self, lease: Lease) -> None:
        """Write a lease; replaces one of the same run."""


class CatalogLeases(LeasesWithoutAClock):
    """Leases in any catalog whose namespaces have properties."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def release(self, run_id: str) -> None:
        if _key(run_id) in self._properties():
            self._change(removals={_key(run_id)})

    def all(self) -> list[Lease]:
        return _leases(self._properties())

    def _ensure_ledger(self) -> None:
        self._catalog().create_namespace_if_not_exists(LEDGER_SCHEMA)

    def _put(self, lease: Lease) -> None:
        self._change(updates={_key(lease.run_id): _dump(lease)})

    def _change(self, **change: Any) -> None:
        # Polaris refuses a change of properties while another one is made.
        retrying(_is_conflict)(self._catalog().update_namespace_properties, LEDGER_SCHEMA, **change)

    def _properties(self) -> Mapping[str, str]:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            found: Mapping[str, str] = self._catalog().load_namespace_properties(LEDGER_SCHEMA)
        except NoSuchNamespaceError:
            return {}
        return found


class MetastoreLeases(LeasesWithoutAClock):
    """Leases as entries of a metastore."""

    def __init__(self, metastore: Metastore, ensure_schema: Callable[[str], None]) -> None:
        self._metastore = metastore
        self._ensure_schema = ensure_schema

    def release(self, run_id: str) -> None:
        self._metastore.drop_marks(LEDGER_SCHEMA, [_mark(run_id)])

    def all(self) -> list[Lease]:
        return _sorted(self._metastore.marks(LEDGER_SCHEMA).values())

    def _ensure_ledger(self) -> None:
        self._ensure_schema(LEDGER_SCHEMA)

    def _put(self, lease: Lease) -> None:
        self._metastore.put_mark(LEDGER_SCHEMA, _mark(lease.run_id), _dump(lease))


def _is_conflict(error: BaseException) -> bool:
    answer = getattr(error.__cause__, "response", None)
    return getattr(answer, "status_code", None) == 409


def _leases(properties: Mapping[str, str]) -> list[Lease]:
    return _sorted(value for key, value in properties.items() if key.startswith(_PREFIX))


def _sorted(values: Iterable[str]) -> list[Lease]:
    found = map(_load, values)
    return sorted((one for one in found if one is not None), key=lambda one: one.since)


def _mark(run_id: str) -> str:
    return "lease_" + re.sub(r"[^a-z0-9]", "_", run_id.lower())


def _key(run_id: str) -> str:
    return f"{_PREFIX}{run_id}"


def _dump(lease: Lease) -> str:
    return json.dumps(asdict(lease), separators=(",", ":"))


def _load(value: str) -> Lease | None:
    try:
        return Lease(**json.loads(value))
    except (TypeError, ValueError):
        # Another version wrote it, and removes it when that run ends.
        return None
