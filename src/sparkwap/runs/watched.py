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
"""How often a look is repeated while what it has found moves on."""


@dataclass(frozen=True, slots=True)
class GateBypass:
    """A table or view of `main` that a run has moved past the gate.

    Attributes:
        identifier: The table or view.
        node: Id of the node that did it, as far as that is known.
        told: What was done, by what it is known, and what readers saw, in words.
        back: Whether readers see what they saw before, but for what others have done.
    """

    identifier: Identifier
    node: str | None
    told: str
    back: bool


class MainWatch:
    """Watches `main` for one run; safe for use by several threads.

    Args:
        watch: Looks at the catalog; has had its first look.
        run_id: The run.
        app_id: Tells the Spark application that the run writes by; asked when it matters.
        same_clock: Whether Spark's clock is that of this process.
        clock: Milliseconds since the epoch, for tests.
    """

    def __init__(
        self,
        watch: Watch,
        run_id: str,
        *,
        app_id: Callable[[], str | None] = lambda: None,
        same_clock: bool = True,
        clock: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        self._watch = watch
        self._run_id = run_id
        self._app_id = app_id
        self._same_clock = same_clock
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._at_work: dict[int, net.SentCommand] = {}
        self._done: list[net.SentCommand] = []
        self._marked = True
        self.caught: list[GateBypass] = []

    def sent(self, node: str | None, text: str) -> None:
        """Record that this thread is about to send a statement."""
        self.answered()
        if net.unmarks(text):
            # Of the whole run: sessions are handed on from node to node.
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
        """Look at `main`, and put back what this run has moved.

        Args:
            always: Look although no command was sent since the last look.

        Returns:
            What was found this time.

        Raises:
            CatalogError: The catalog cannot be read.
        """
        with self._looking:
            with self._lock:
                done = list(self._done)
                commands = [*done, *self._at_work.values()]
            if not commands and not always:
                return []
            about = None if always else net.about(commands)
            found: list[GateBypass] = []
            for left in reversed(range(_LOOKS)):
                judged = [
                    self._judged(*one, commands, last=always, give_up=not left)
                    for one in self._watch.changes(about)
                ]
                found += [one for one in judged if isinstance(one, GateBypass)]
                if "again" not in judged:
                    break
                with self._lock:
                    commands = [*self._done, *self._at_work.values()]
            with self._lock:
                # What is at work still may yet move something; so may what came meanwhile.
                if "later" not in judged:
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
        app_id = self._app_id() if unstamped and commands else None
        verdict = net.judge(
            change, self._run_id, commands, app_id=app_id, same_clock=self._same_clock
        )
        if verdict.by == "others":
            self._watch.accept(change.identifier, now)
            return None
        if verdict.goes_on and not last:
            # The next look finds it again.
            return "later"
        if verdict.by == "unknown":
            self._watch.accept(change.identifier, now)
            return self._caught(change, verdict, "nothing proves that this run did it", back=False)
        try:
            self._watch.put_back(change.identifier, before, verdict.own)
        except (Differs, CatalogError) as problem:
            if not give_up and self._watch.row(change.identifier) != now:
                # Somebody has written since the look: this run once more, or another writer.
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
        told = net.format_change(change, verdict, seconds, problem, back=back)
        return GateBypass(change.identifier, verdict.node, told, back)
