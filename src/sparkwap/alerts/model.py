"""The words of alerts: what happened, and what is sent to whom."""

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
"""Kind of event -> what is said of a table."""


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Some of the rows that failed a test.

    Attributes:
        columns: Those that may be shown.
        rows: Their values as text.
        withheld: Why something, or all of it, is not shown; empty if nothing was withheld.
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
    """A command that goes on from here, and what it is for."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that somebody should know, of one table or of a whole run.

    Attributes:
        kind: What happened.
        subject: ``schema.table``, or what the run is called.
        run_id: dbt's invocation id of the run that it happened in.
        at: When.
        owners: Whose it is, by the project's ``meta.owner``; empty for nobody's.
        reasons: Why, in words.
        tests: The tests that failed.
        branch: The audit branch on which the candidate stands; None where there is none.
        commands: What to do now.
        state: What readers of main see now, in words.
        key: What else makes two events of one kind and subject the same trouble.
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
        """How bad it is."""
        return SEVERITY[self.kind]

    @property
    def fingerprint(self) -> str:
        """The same for what is the same trouble, in whichever run it shows.

        Tonight's run has another id and another branch of its own than last night's; a branch that
        users have named is another matter.
        """
        branch = "" if self.branch is None or is_run_branch(self.branch) else self.branch
        text = json.dumps([self.kind, self.subject, branch, self.key])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to one route at once: the news of one run for one set of owners.

    Attributes:
        route: The route's name.
        run_id: The run.
        target: dbt's target.
        owners: Whose tables it is about.
        events: What happened, the worst first.
        known: Number of further events that were told within the interval of suppression.
    """

    route: str
    run_id: str
    target: str
    owners: tuple[str, ...]
    events: tuple[Event, ...]
    known: int = 0

    @property
    def severity(self) -> Severity:
        """That of the worst event."""
        return "error" if any(event.severity == "error" for event in self.events) else "warning"

    @property
    def message_id(self) -> str:
        """The same each time that this message is tried."""
        parts = [self.route, self.run_id, *sorted(event.fingerprint for event in self.events)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
