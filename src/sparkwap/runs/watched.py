"""Watches `main` during a run, and restores what the run has changed past the gate.

`sparkwap.gate.net` decides; `sparkwap.runs.watching` reads the catalog and restores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from sparkwap.catalog.model import Identifier
from sparkwap.catalog.planning import Differs
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import CatalogError
from sparkwap.gate import net
from sparkwap.runs.watching import Watch

_LOOKS = 5
"""How often a check is repeated while a table that it has found changes again."""


@dataclass(frozen=True, slots=True)
class GateBypass:
    """A change of `main` by which a run has bypassed the gate.

    Attributes:
        message: The change, the evidence, and the state that readers saw, in words.
        back: Whether the former state was restored, apart from changes of others.
    """

    identifier: Identifier
    node: str | None
    message: str
    back: bool


class MainWatch:
    """Watches `main` for one run; safe for use by several threads.

    Args:
        watch: Reads the catalog; has made its first check.
        same_clock: Whether Spark has the clock of this process.
        clock: Returns milliseconds since the epoch; for tests.
    """

    def __init__(
        self,
        watch: Watch,
        run_id: str,
        *,
        application: Callable[[], net.Application | None] = lambda: None,
        same_clock: bool = True,
        clock: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        self._watch = watch
        self._run_id = run_id
        self._application = application
        self._same_clock = same_clock
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._at_work: dict[int, net.SentCommand] = {}
        self._done: list[net.SentCommand] = []
        # Commands after which only the tables that they name were checked.
        self._checked: list[net.SentCommand] = []
        self._marked = True
        self.caught: list[GateBypass] = []

    def sent(self, node: str | None, text: str) -> None:
        """Record that this thread is about to send a statement."""
        self.answered()
        if net.unmarks(text):
            # For the whole run, because nodes reuse the sessions of other nodes.
            self._marked = False
        if net.is_command(text):
            self._watch.name(net.named(text))
            command = net.SentCommand(node, text, self._clock(), None, self._marked)
            with self._lock:
                self._at_work[threading.get_ident()] = command

    def answered(self) -> None:
        """Record that the last statement of this thread has ended."""
        with self._lock:
            command = self._at_work.pop(threading.get_ident(), None)
            if command is not None:
                self._done.append(replace(command, done_ms=self._clock()))

    def check(self, *, always: bool = False) -> list[GateBypass]:
        """Check `main`, and undo the changes by which this run has bypassed the gate.

        Args:
            always: Check even if no command was sent since the last check.

        Returns:
            The bypasses that this check has found.
        """
        with self._looking:
            with self._lock:
                done = list(self._done)
                commands = [*done, *self._at_work.values()]
            if not commands and not always:
                return []
            about = None if always or self._watch.sees_all else net.about(commands)
            # A command may have changed a table that it does not name.
            earlier = self._checked if about is None else []
            found: list[GateBypass] = []
            for left in reversed(range(_LOOKS)):
                judged = [
                    self._judged(*one, [*earlier, *commands], last=always, give_up=not left)
                    for one in self._watch.changes(about)
                ]
                found += [one for one in judged if isinstance(one, GateBypass)]
                if "again" not in judged:
                    break
                with self._lock:
                    commands = [*self._done, *self._at_work.values()]
            with self._lock:
                # Commands that still run, or were sent meanwhile, may yet change something.
                if "later" not in judged:
                    self._checked = [] if about is None else [*self._checked, *done]
                    del self._done[: len(done)]
                self.caught += found
            return found

    def _judged(
        self,
        change: net.MainChange,
        before: Pointer | None,
        now: Pointer | None,
        commands: list[net.SentCommand],
        *,
        last: bool,
        give_up: bool,
    ) -> GateBypass | Literal["later", "again"] | None:
        unstamped = any(one.run_id != self._run_id for one in change.writers)
        application = self._application() if unstamped and commands else None
        verdict = net.judge(
            change, self._run_id, commands, application=application, same_clock=self._same_clock
        )
        if verdict.by == "others":
            self._watch.accept(change.identifier, now)
            return None
        if verdict.may_delete_files and not last:
            # The next check finds it again.
            return "later"
        if verdict.by == "unknown":
            self._watch.accept(change.identifier, now)
            return self._caught(change, verdict, "nothing proves that this run did it", back=False)
        try:
            self._watch.put_back(change.identifier, before, verdict.own)
        except (Differs, CatalogError) as problem:
            if not give_up and self._watch.row(change.identifier) != now:
                # This run or another writer has written since the check.
                return "again"
            self._watch.accept(change.identifier, now)
            return self._caught(change, verdict, str(problem), back=False)
        return self._caught(change, verdict, "", back=True)

    def _caught(
        self, change: net.MainChange, verdict: net.ChangeOrigin, problem: str, *, back: bool
    ) -> GateBypass:
        own = [one.at_ms for one in change.writers if one.snapshot_id in verdict.own]
        since = min(own) if own else max(change.times, default=None)
        seconds = None if since is None else max(self._clock() - since, 0) / 1000
        message = net.format_change(change, verdict, seconds, problem, back=back)
        return GateBypass(change.identifier, verdict.node, message, back)
