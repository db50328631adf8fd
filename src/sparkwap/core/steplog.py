"""Structured log: one line of JSON for each step of the gate.

    {"at": "2026-01-31T06:00:01.234Z", "event": "built", "run_id": "1a2b3c4d-...",
     "branch": "wap_1a2b3c4d", "table": "shop.orders", "seconds": 3.21, "node_id": "model.shop.o"}

The log is for machines; people read the summary of the run. It has no text of statements or rows,
so it may be sent to other systems.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparkwap.core.checkpoints import Checkpoint, listen

FILE_NAME = "sparkwap.jsonl"
ROTATE_BYTES = 20_000_000

EVENTS: Mapping[str, str] = {
    "run.opened": "opened",
    "node.begun": "begun",
    "node.placed": "placed",
    "node.recorded": "built",
    "run.closing": "closing",
    "run.decided": "decided",
    "publish.committed": "committed",
    "journal.written": "intended",
    "journal.moved": "committed",
    "publish.verified": "verified",
    "rollback.committed": "rolled back",
    "discard.committed": "discarded",
    "run.closed": "closed",
}
"""Checkpoint to event. Verdicts add ``published``, ``held``, ``rejected`` or ``refused``, with the
reason."""

_FACTS = ("table", "node_id", "publish_id", "reason", "tables", "message")

Write = Callable[[str], None]


class StepLog:
    """Writes the lines of one dbt invocation; safe for use by several threads.

    Args:
        write: Writes a line, given without its line end.
        run_id: dbt's invocation id, for steps without a run id.
        clock: Returns seconds, for tests.
    """

    def __init__(
        self, write: Write, run_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._run_id = run_id
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {"": clock()}
        self._end: Callable[[], None] | None = None

    def start(self) -> StepLog:
        """Start to listen to the steps."""
        if self._end is None:
            self._end = listen(self._reached)
        return self

    def stop(self) -> None:
        """Stop listening."""
        if self._end is not None:
            self._end()
            self._end = None

    def tell(self, event: str, **facts: Any) -> None:
        """Write a line with ``run_id``, ``branch``, ``table`` and the facts of `_FACTS`."""
        table = str(facts.get("table") or "")
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "run_id": facts.get("run_id") or self._run_id,
            "branch": facts.get("branch"),
            "table": table or None,
            "seconds": self._since(table),
        }
        line |= {key: facts[key] for key in _FACTS if facts.get(key) is not None}
        self._write(json.dumps(line, ensure_ascii=False))

    def _reached(self, step: Checkpoint, facts: Mapping[str, Any]) -> None:
        event = EVENTS.get(step.name)
        if event is not None:
            self.tell(event, **facts)

    def _since(self, table: str) -> float:
        """Return the seconds since the previous step of the same table, or else of the run."""
        now = self._clock()
        with self._lock:
            before = self._last.get(table, self._last[""])
            self._last[table] = now
        return round(now - before, 3)


def make_private(folder: Path, pattern: str) -> None:
    """Make files that other programs write, such as ``dbt.log``, readable by their owner only.

    Files of other owners are not changed.
    """
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            path.chmod(path.stat().st_mode & 0o700)


def to_file(folder: Path) -> Write:
    """Return a function that appends lines to ``sparkwap.jsonl`` in dbt's target folder.

    Failures are ignored, because a log that cannot be written must not end a run.
    """
    path = folder / FILE_NAME
    lock = threading.Lock()
    make_private(folder, f"{FILE_NAME}*")

    def write(line: str) -> None:
        try:
            with lock:
                folder.mkdir(parents=True, exist_ok=True)
                if path.exists() and path.stat().st_size > ROTATE_BYTES:
                    path.replace(path.with_suffix(".jsonl.1"))
                # Only the owner can read the file, because Spark's errors may quote values.
                owned = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
                with os.fdopen(owned, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
        except OSError:
            return

    return write
