"""Commits of pointers and metadata files together: staged, and repeated after conflicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import tenacity
from sqlalchemy.exc import DBAPIError

from sparkwap.catalog import metadata as md
from sparkwap.catalog.backend import CatalogBackend, Guard
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.documents import Documents
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import (
    CannotShare,
    Conflict,
    Fate,
    Pointer,
    PointerUpdate,
    Unanswered,
)
from sparkwap.catalog.refusals import CommitUnknown, WriteDenied
from sparkwap.core.checkpoints import COMMIT_STEPS, Operation, Part, checkpoint
from sparkwap.core.errors import CatalogError, SparkwapError
from sparkwap.core.retry import retrying, rule_of

R = TypeVar("R")

_TRIES = 20
_FIRST_WAIT_SECONDS = 0.02
# A longer pause would not help: each lost try is another writer's commit.
_LONGEST_WAIT_SECONDS = 1.0
_IN_TURN: Collection[Operation] = (
    "publish", "rollback", "reopen", "discard", "ledger", "sweep", "sweep_table", "erase",
    "maintain",
)  # fmt: skip
"""Operations that append rows to the ledger, whose tables all runs share."""

_PARTLY = (
    "`dbt run-operation wap_status` shows the state. Correct the cause, then run the same command "
    "again: it does the rest."
)
_LOOK_WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)


class _Again(Exception):
    """Another writer was faster (the cause), so the commit has to be staged again."""


@dataclass(frozen=True)
class Staged(Generic[R]):
    """A prepared commit: its files are written, its row changes are not yet made.

    Attributes:
        result: The return value of `Store.commit`.
        files: The files written for the commit, which are deleted if it fails.
        drop_if_empty: Schemas to drop in the same transaction if they have no member left.
        drop_schemas: Schemas to drop in the same transaction.
        requires: The required rows of names that the transaction does not change.
        obsolete: Files that are no longer needed after the commit.
        guard: Called in the transaction, if there is one; raises to stop it.
        first: On catalogs that are not atomic, called before the changes, with the notes of former
            attempts of this commit, to which it adds its own.
        made: On catalogs that are not atomic, called after each row change.
        then: On catalogs that are not atomic, called after the commit.
    """

    result: R
    swaps: Sequence[PointerUpdate] = ()
    files: Sequence[str] = ()
    drop_if_empty: Collection[str] = ()
    drop_schemas: Collection[str] = ()
    requires: Mapping[Identifier, Pointer | None] = field(default_factory=dict)
    obsolete: Sequence[str] = ()
    guard: Guard | None = None
    first: Callable[[set[str]], None] | None = None
    made: Callable[[PointerUpdate], None] | None = None
    then: Callable[[], None] | None = None


class _Progress:
    """Whether a commit on a catalog that is not atomic has made a change.

    Attributes:
        attempt: Whether the present attempt has.
        any: Whether any attempt has.
        told: Called with each change.
    """

    def __init__(self) -> None:
        self.attempt = self.any = False
        self.told: Callable[[PointerUpdate], None] | None = None

    def begin(self, told: Callable[[PointerUpdate], None] | None) -> None:
        self.attempt, self.told = False, told

    def made(self, swap: PointerUpdate) -> None:
        self.attempt = self.any = True
        if self.told is not None:
            self.told(swap)


class Store(Documents):
    """A catalog and its metadata files."""

    def __init__(self, backend: CatalogBackend) -> None:
        super().__init__(backend)
        self._what = "database" if backend.atomic else "server"
        self._extent = (
            "The commit was made wholly or not at all."
            if backend.atomic
            else "The commit was made in part, wholly or not at all."
        )

    def grow(
        self, changes: Iterable[tuple[Pointer, MetadataChange]]
    ) -> tuple[list[PointerUpdate], list[str]]:
        """Write the new metadata files of changed tables; returns the row changes and the files."""
        swaps: list[PointerUpdate] = []
        documents: dict[str, md.Document] = {}
        for row, change in changes:
            document = change.document(row.location)
            after = Pointer(row.identifier, "table", md.next_location(document, row.location))
            swaps.append(PointerUpdate(row, after, change))
            documents[after.location] = document
        return swaps, self.write(documents)

    def commit(self, stage: Callable[[], Staged[R]], operation: Operation, **facts: Any) -> R:
        """Stage and commit; repeats both if another writer was faster.

        Args:
            stage: Reads the catalog, decides, writes files. Called again after each conflict. On
                a catalog that is not atomic, a part of the former attempt may be made then.
            facts: The facts for the checkpoints; see `sparkwap.core.checkpoints.checkpoint`.

        Raises:
            CatalogError: Another writer was faster at each attempt, or the database failed;
                nothing has changed.
            CommitUnknown: It is unknown whether the database has committed.
        """
        steps = COMMIT_STEPS[operation]
        progress, notes = _Progress(), set[str]()

        def at(part: Part) -> None:
            checkpoint(steps[part], **facts)

        def once() -> R:
            with self.backend.turn() if operation in _IN_TURN else nullcontext():
                return in_turn()

        def in_turn() -> R:
            at("begins")
            try:
                staged = stage()
            except DBAPIError as error:
                # Staging commits nothing, so a temporary error may be retried.
                if rule_of(error) not in ("retry", "look"):
                    raise
                raise _Again from error
            except SparkwapError as error:
                _require_whole(progress, error)
                if isinstance(error.__cause__, DBAPIError) and rule_of(error.__cause__) == "retry":
                    raise _Again from error.__cause__
                raise
            progress.begin(staged.made)
            try:
                at("files_written")
                if staged.first is not None:
                    staged.first(notes)
                self._apply(staged, at, progress)
            except Conflict as conflict:
                self._refused(staged, conflict, progress)
            except DBAPIError as error:
                lost = Unanswered(str(error.orig), lost=error.connection_invalidated)
                self._settle(staged, lost, error, progress)
            except Unanswered as error:
                self._settle(staged, error, error, progress)
            except BaseException as error:
                self._stopped(staged, error, progress)
                raise
            self._forget_unwritten(staged.files)
            self.delete(staged.obsolete)
            if staged.then is not None:
                self._then(staged.then)
            at("cleaned")
            return staged.result

        try:
            again = retrying(
                lambda one: isinstance(one, _Again), _TRIES, _FIRST_WAIT_SECONDS,
                _LONGEST_WAIT_SECONDS,
            )  # fmt: skip
            return again(once)
        except _Again as error:
            extent = "Nothing was changed." if self.backend.atomic else self._extent
            raise CatalogError(
                f"Other writers were faster {_TRIES} times in a row; last: {error.__cause__}. "
                f"{extent} Run the same command again."
            ) from error.__cause__

    def _then(self, then: Callable[[], None]) -> None:
        try:
            then()
        except CatalogError as error:
            # The error may say that nothing was changed, which is true of the ledger only.
            raise CommitUnknown(
                f"The commit was made, but its rows could not be written to the ledger: {error} "
                "`dbt run-operation wap_status` shows the state."
            ) from error

    def _refused(self, staged: Staged[Any], conflict: Conflict, progress: _Progress) -> None:
        """Return if a commit was made although it was refused; raise `_Again` otherwise.

        A request that was sent again is refused if the catalog has carried out the first one.
        """
        # After an answered change, no file is deleted, and the next attempt completes the others.
        known = self.backend.atomic or progress.attempt
        fate = "not made" if known else self._fate(staged)
        if fate == "made":
            self._drop_schemas(staged)
            return
        sure = fate == "not made" and not conflict.unclear
        self._give_up(staged, keep=progress.attempt or not sure)
        raise _Again from conflict

    def _drop_schemas(self, staged: Staged[Any]) -> None:
        if not self.backend.atomic:
            # The request that failed was not the last one.
            schemas = {*staged.drop_if_empty, *staged.drop_schemas}
            self.backend.apply([], documents={}, drop_if_empty=schemas)

    def _give_up(self, staged: Staged[Any], *, keep: bool) -> None:
        """Delete the files of a commit, unless a change was or may be made that refers to them.

        The remaining files are orphans, which maintenance removes.
        """
        if keep:
            self._forget_unwritten(staged.files)
        else:
            self.delete(staged.files)

    def _stopped(self, staged: Staged[Any], error: BaseException, progress: _Progress) -> None:
        """Delete the files of a commit that ended with an error, if it was certainly not made.

        Raises:
            CommitUnknown: The catalog has refused a change after it had made another one.
        """
        if self.backend.atomic:
            if isinstance(error, WriteDenied) or self._fate(staged) == "not made":
                self.delete(staged.files)
            return
        # A request that was interrupted may still be executed.
        if isinstance(error, SparkwapError):
            self._give_up(staged, keep=progress.attempt)
            _require_whole(progress, error)

    def _apply(self, staged: Staged[Any], at: Callable[[Part], None], progress: _Progress) -> None:
        if staged.swaps or staged.drop_if_empty or staged.drop_schemas:
            self.backend.apply(
                staged.swaps,
                requires=staged.requires,
                documents=self._unwritten_of(staged.files),
                drop_if_empty=staged.drop_if_empty,
                drop_schemas=staged.drop_schemas,
                at=at,
                guard=staged.guard,
                made=progress.made,
            )
            at("committed")

    def _settle(
        self, staged: Staged[Any], failure: Unanswered, cause: Exception, progress: _Progress
    ) -> None:
        """Return if a commit was made although it ended with an error; raise otherwise.

        The files are deleted only if the commit was certainly not made: a server may still be
        committing after its connection broke.
        """
        fate = self._fate(staged)
        if fate == "made":
            self._drop_schemas(staged)
            return
        # New rows cannot be locked, and a server may still execute an interrupted request: both
        # commits may still be made.
        locked = self.backend.atomic and any(swap.before for swap in staged.swaps)
        if fate == "unknown" or progress.any or (failure.lost and not locked):
            raise CommitUnknown(
                f"The catalog's {self._what} failed during a commit: {failure.reason}. "
                f"{self._extent} When the {self._what} is back, `dbt run-operation wap_status` "
                "shows the state. Then run the same command again (`dbt retry` for a build): it "
                "checks the state, and does nothing twice."
            ) from cause
        self.delete(staged.files)
        raise CatalogError(
            f"The catalog's {self._what} failed: {failure.reason}. Nothing was changed. Check the "
            f"{self._what} (space, rights, connection), then run the same command again."
        ) from cause

    def _fate(self, staged: Staged[Any]) -> Fate:
        if not staged.swaps:
            return "not made"

        def look() -> Fate:
            fate = self.backend.fate(staged.swaps)
            known = fate != "unknown" or not self.backend.atomic
            return fate if known else self._fate_by_history(staged.swaps)

        return tenacity.Retrying(
            wait=tenacity.wait_chain(*map(tenacity.wait_fixed, _LOOK_WAITS_SECONDS)),
            stop=tenacity.stop_after_attempt(1 + len(_LOOK_WAITS_SECONDS)),
            retry_error_callback=lambda _state: "unknown",
        )(look)

    def _fate_by_history(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """Like `SqlBackend.fate`, from the metadata logs of tables that others changed since.

        One table is enough, because the transaction is atomic.
        """
        changed = [s for s in swaps if s.before and s.after and s.after.kind == "table"]
        found = self.backend.find({s.after.identifier for s in changed if s.after})
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


def _require_whole(progress: _Progress, error: SparkwapError) -> None:
    """Raise if a commit that ends with an error is made in part, which the error does not say."""
    # After `CannotShare`, the caller takes another way.
    if progress.any and not isinstance(error, (CommitUnknown, CannotShare)):
        raise CommitUnknown(
            f"A part of a commit was made, and then it failed: {error} {_PARTLY}"
        ) from error
