"""The types of alerts: events, and the messages that report them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sparkwap.core.names import is_run_branch
from sparkwap.gate.alert_settings import SEVERITY, Kind, Severity

TITLES: Mapping[Kind, str] = {
    "rejected": "rejected",
    "refused": "refused by the catalog",
    "failed": "not closed",
    "held": "held too long",
    "quarantine": "with rows in quarantine",
    "rolled_back": "rolled back",
}
"""Kind of event -> the words for a table in a title."""


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Some of the rows that failed a test.

    Attributes:
        columns: The columns that may be shown.
        withheld: Which columns are not shown, and why; empty if all are shown.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    withheld: str = ""


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A test that rejected a table; ``failures`` is the number of rows, None if unknown."""

    test_id: str
    name: str
    failures: int | None = None
    sample: FailedRows | None = None


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command that continues from here, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event of one table or of a whole run.

    Attributes:
        subject: ``schema.table``, or the name of the run.
        owners: The owners by the project's ``meta.owner``; empty if there are none.
        branch: The audit branch of the candidate; None if there is none.
        state: The state that readers of main see now, in words.
        key: Part of the fingerprint, beside kind and subject.
    """

    kind: Kind
    subject: str
    run_id: str
    at: datetime
    owners: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    tests: tuple[FailedTest, ...] = ()
    branch: str | None = None
    commands: tuple[NextCommand, ...] = ()
    state: str = ""
    key: str = ""

    @property
    def severity(self) -> Severity:
        """``error`` or ``warning``."""
        return SEVERITY[self.kind]

    @property
    def fingerprint(self) -> str:
        """An id of the problem, which is equal if another run has the same problem.

        Each run has an audit branch of its own, so such a branch is no part of the id. A branch
        that a user has named is.
        """
        branch = "" if self.branch is None or is_run_branch(self.branch) else self.branch
        text = json.dumps([self.kind, self.subject, branch, self.key])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to one route: the events of one run for one set of owners.

    Attributes:
        events: The events, errors first.
        known: Number of further events that the route got within the interval of suppression.
        left_out: Events that are not shown, because the message would be too long.
        reminds_of: When the route last got one of the events; None if it never did.
    """

    route: str
    run_id: str
    target: str
    owners: tuple[str, ...]
    events: tuple[Event, ...]
    known: int = 0
    left_out: tuple[Event, ...] = ()
    reminds_of: datetime | None = None

    @property
    def all_events(self) -> tuple[Event, ...]:
        """The events, with those that are not shown."""
        return (*self.events, *self.left_out)

    @property
    def severity(self) -> Severity:
        """``error`` if an event is an error, else ``warning``."""
        return "error" if any(event.severity == "error" for event in self.all_events) else "warning"

    @property
    def message_id(self) -> str:
        """An id of the message, which is equal in each try, also of a later command."""
        events = sorted(event.fingerprint for event in self.all_events)
        # `sparkwap alerts check` finds quarantines, which belong to no run.
        is_of_run = any(event.kind != "quarantine" for event in self.all_events)
        run = self.run_id if is_of_run else self.target
        parts = [self.route, run, str(self.reminds_of), *events]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
