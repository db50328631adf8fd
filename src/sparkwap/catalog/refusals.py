"""Errors of a publish or rollback: what differs, the present state, and the next command."""

from __future__ import annotations

from collections.abc import Sequence

from sparkwap.catalog.model import Identifier, Mismatch
from sparkwap.core import next_command
from sparkwap.core.errors import CatalogError, PublishError


class _Differing(PublishError):
    """Tables are not as they should be; the message lists the ``mismatches``."""

    def __init__(self, head: str, mismatches: Sequence[Mismatch], way_on: str) -> None:
        self.mismatches = tuple(mismatches)
        lines = "".join(f"\n  {mismatch}" for mismatch in mismatches)
        super().__init__(f"{head}{lines}\n{way_on}")


class PublishRefused(_Differing):
    """The catalog differs from what was audited; nothing was published, nothing has changed."""

    outcome = "rejected"

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        way_on = "build and audit it again, on main as it is now."
        if any(mismatch.kind == "alike" for mismatch in mismatches):
            way_on = (
                "readers could confuse these names. Give one of them another `alias` or schema, "
                "and build the branch again; or drop a table that nobody reads any more in Spark, "
                "and publish the branch again: "
                "dbt run-operation wap_publish --args '{branch: <branch>}'"
            )
        super().__init__(
            "Nothing was published: the catalog no longer holds what was audited.",
            mismatches,
            f"The audit branch is untouched: {way_on}",
        )


class RollbackRefused(_Differing):
    """Tables have changed since the publish; nothing was rolled back, nothing has changed."""

    outcome = "rejected"

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        super().__init__(
            "Nothing was rolled back: the catalog no longer holds what was published.",
            mismatches,
            "All tables are as they were. Roll back the later publish first "
            "(dbt run-operation wap_rollback --args '{run: <run>}'), or correct the tables "
            "by a new run.",
        )

    def with_message(self, text: str) -> RollbackRefused:
        """Return the same refusal with a more detailed message."""
        better = RollbackRefused(self.mismatches)
        better.args = (text,)
        return better


class PublishTorn(_Differing):
    """A sequential publish could neither be completed nor wholly undone.

    Attributes:
        mismatches: The differences of the tables that could not be published.
        stayed: The tables that stay published, because other writers have changed them since.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], stayed: Sequence[Identifier]
    ) -> None:
        self.stayed = tuple(stayed)
        kept = ", ".join(".".join(name) for name in stayed)
        super().__init__(
            f"The publish {publish_id} was undone in part: other writers moved main of a table "
            f"before its turn, and changed these tables after their turn: {kept}. All rows "
            "that readers see were audited, but the run is published in part only. Not "
            "published:",
            mismatches,
            "Build again with `dbt build`: it starts from the present main, and publishes all "
            f"tables together. {kept} already has the rows of this run: a model that appends "
            "without a unique key would add them again, so leave it out with `--exclude`.",
        )


class RollbackTorn(_Differing):
    """A sequential rollback left tables that other writers changed meanwhile.

    Attributes:
        mismatches: The differences of the tables that were not rolled back.
        back: The tables and views that readers see as before the publish.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], back: Sequence[Identifier]
    ) -> None:
        self.publish_id = publish_id
        self.back = tuple(back)
        moved = ", ".join(".".join(name) for name in back)
        super().__init__(
            f"The publish {publish_id} was rolled back in part: {moved} are as before it. "
            "Other writers changed these tables meanwhile, which still have the published "
            "rows:",
            mismatches,
            "To see the later changes and the next commands, run "
            f"`{next_command.operation('wap_rollback', run=publish_id)}`. It rolls back the "
            "remaining tables, but changes nothing while they have rows of other writers.",
        )

    def with_message(self, text: str) -> RollbackTorn:
        """Return the same error with a more detailed message."""
        better = RollbackTorn(self.publish_id, self.mismatches, self.back)
        better.args = (text,)
        return better


class WriteDenied(CatalogError):
    """The user of the catalog's database may not write it; the transaction was rolled back."""

    def __init__(self, user: str | None, reason: str) -> None:
        super().__init__(
            f"{f'The user {user}' if user else 'The user'} may not write the catalog's database: "
            f"{reason}. Nothing was changed by this: tables, audit branches and ledger are as they "
            "were. Run the command as a user with the rights of a writer."
        )


class CommitUnknown(CatalogError):
    """It is unknown whether the database has committed the transaction."""


class PublishUnverified(CatalogError):
    """A publish was committed, but the catalog shows another state."""
