"""Rows and metadata files together: cached reads, staged writes, commits with retries."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import Files
from sparkwap.catalog.model import CommitUnknown, Identifier
from sparkwap.catalog.rows import Conflict, Fate, Row, Rows, Swap
from sparkwap.errors import CatalogError
from sparkwap.steps import COMMIT_STEPS, Operation, Part, reached
from sparkwap.transient import rule_of, wait_seconds

T = TypeVar("T")
R = TypeVar("R")

_CACHED_DOCUMENTS = 1000
_THREADS = 8
_TRIES = 8
_FIRST_WAIT_SECONDS = 0.02
_LOOK_WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Staged(Generic[R]):
    """A commit that is ready: its files are written, its row changes are not.

    Attributes:
        result: What `Store.commit` returns once it is committed.
        swaps: The row changes.
        files: The files that were written for it, deleted if it does not come to a commit.
        drop_if_empty: Schemas to drop in the same transaction if they have no member left.
        drop_schemas: Schemas to drop in the same transaction.
        requires: What must stand under names that the transaction leaves alone.
        obsolete: Files that nothing needs once it is committed.
        guard: Looks at the catalog, in the transaction where there is one, and raises to stop it.
    """

    result: R
    swaps: Sequence[Swap] = ()
    files: Sequence[str] = ()
    drop_if_empty: Collection[str] = ()
    drop_schemas: Collection[str] = ()
    requires: Mapping[Identifier, Row | None] = field(default_factory=dict)
    obsolete: Sequence[str] = ()
    guard: Callable[[Connection | None], None] | None = None


class Store:
    """The catalog's database and its metadata files.

    Args:
        name: The catalog's name.
        properties: PyIceberg's catalog properties; ``uri`` is needed.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.rows = Rows(name, properties["uri"])
        self.files = Files(properties)
        self._documents: OrderedDict[str, md.Document] = OrderedDict()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Let go of connections and threads."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self.rows.engine.dispose()

    def load(self, location: str) -> md.Document:
        """The metadata document in a file; from memory if it was read before, as none changes.

        Raises:
            CatalogError: The file is not there, or is no metadata file.
        """
        with self._lock:
            document = self._documents.get(location)
            if document is not None:
                self._documents.move_to_end(location)
                return document
        document = self.reload(location)
        with self._lock:
            self._documents[location] = document
            while len(self._documents) > _CACHED_DOCUMENTS:
                self._documents.popitem(last=False)
        return document

    def reload(self, location: str) -> md.Document:
        """As `load`, always from the file."""
        try:
            return md.parse(self.files.read(location))
        except FileNotFoundError as error:
            raise CatalogError(
                f"The metadata file {location} does not exist, though the catalog or a table's "
                "history names it. Nothing was changed. Restore the file, or drop the table that "
                "it belongs to."
            ) from error
        except ValueError as error:
            raise CatalogError(
                f"The metadata file {location} cannot be read: {error}. Nothing was changed. "
                "Restore the file, or drop the table that it belongs to."
            ) from error

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """``function`` of each value, in order, by several threads where it pays."""
        listed = list(values)
        if len(listed) < 2:
            return [function(value) for value in listed]
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sparkwap-lake")
        tasks = [self._threads.submit(function, value) for value in listed]
        # All come to their end before an error is told: what cleans up after it must not race
        # with those that still write.
        wait(tasks)
        return [task.result() for task in tasks]

    def write(self, documents: Mapping[str, md.Document]) -> list[str]:
        """Write metadata files; if one fails, none is left.

        Returns:
            Their locations.
        """
        try:
            self.map(lambda item: self.files.write(item[0], md.dump(item[1])), documents.items())
        except BaseException:
            self.delete(documents)
            raise
        return list(documents)

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files if they are there."""
        self.map(self.files.delete, locations)

    def commit(
        self,
        stage: Callable[[], Staged[R]],
        operation: Operation,
        tries: int = _TRIES,
        **facts: Any,
    ) -> R:
        """Stage and commit, again from fresh metadata whenever another writer was faster.

        Args:
            stage: Reads the catalog, decides, writes files. Called again after each conflict.
            operation: What the commit is for, which names its steps.
            tries: How often at most.
            facts: What its steps are about; see `sparkwap.steps.reached`.

        Raises:
            CatalogError: Another writer was faster each time, or the database failed; nothing has
                changed.
            CommitUnknown: The database did not say whether it has committed.
        """
        steps = COMMIT_STEPS[operation]

        def at(part: Part) -> None:
            reached(steps[part], **facts)

        last: Exception | None = None
        for attempt in range(tries):
            at("begins")
            try:
                staged = stage()
            except DBAPIError as error:
                # Staging commits nothing, so whatever passes may be tried again.
                if rule_of(error) not in ("retry", "look"):
                    raise
                last = error
                self._pause(attempt)
                continue
            try:
                at("files_written")
                self._apply(staged, at)
            except Conflict as conflict:
                self.delete(staged.files)
                last = conflict
                self._pause(attempt)
                continue
            except DBAPIError as error:
                self._settle(staged, error)
            except BaseException:
                if self._fate(staged) == "not made":
                    self.delete(staged.files)
                raise
            self.delete(staged.obsolete)
            at("cleaned")
            return staged.result
        raise CatalogError(
            f"Other writers were faster {tries} times in a row; last: {last}. Nothing was changed. "
            "Run the same command again."
        ) from last

    @staticmethod
    def _pause(attempt: int) -> None:
        # Jitter, as writers that met once would meet again at equal pauses.
        time.sleep(wait_seconds(attempt + 1, random.random(), _FIRST_WAIT_SECONDS))

    def _apply(self, staged: Staged[Any], at: Callable[[Part], None]) -> None:
        if staged.swaps or staged.drop_if_empty or staged.drop_schemas:
            self.rows.apply(
                staged.swaps,
                requires=staged.requires,
                drop_if_empty=staged.drop_if_empty,
                drop_schemas=staged.drop_schemas,
                guard=staged.guard,
                at=at,
            )
            at("committed")

    def _settle(self, staged: Staged[Any], error: DBAPIError) -> None:
        """Return if a transaction was made that ended with a database error.

        Its files stay unless it is certain that it was not: a server whose connection broke may
        still be committing.
        """
        fate = self._fate(staged)
        if fate == "made":
            return
        # Rows that only come with the commit cannot be locked, so it may still be on its way.
        on_its_way = error.connection_invalidated and not any(s.before for s in staged.swaps)
        if fate == "unknown" or on_its_way:
            raise CommitUnknown(
                f"The catalog's database failed during a commit: {error.orig}. The commit was made "
                "wholly or not at all. Once the database is back, `dbt run-operation wap_status` "
                "shows which; `dbt retry` looks, and does nothing twice."
            ) from error
        self.delete(staged.files)
        raise CatalogError(
            f"The catalog's database failed: {error.orig}. Nothing was changed. Check the database "
            "(space, rights, connection), then run the same command again."
        ) from error

    def _fate(self, staged: Staged[Any]) -> Fate:
        if not staged.swaps:
            return "not made"
        for pause in (0.0, *_LOOK_WAITS_SECONDS):
            time.sleep(pause)
            try:
                fate = self.rows.fate(staged.swaps)
                return self._fate_by_history(staged.swaps) if fate == "unknown" else fate
            except Exception:
                continue
        return "unknown"

    def _fate_by_history(self, swaps: Sequence[Swap]) -> Fate:
        """As `Rows.fate` where other writers have been since: a table's log has what it was.

        One table is enough, as all of the transaction was made or nothing.
        """
        changed = [s for s in swaps if s.before and s.after and s.after.kind == "table"]
        found = self.rows.find({s.after.identifier for s in changed if s.after})
        for swap in changed:
            row = found.get(swap.after.identifier) if swap.after else None
            if row is None or row.kind != "table" or not swap.before or not swap.after:
                continue
            log = self.load(row.location).get("metadata-log") or ()
            known = {row.location, *(step["metadata-file"] for step in log)}
            if swap.after.location in known:
                return "made"
            if swap.before.location in known:
                return "not made"
        return "unknown"
