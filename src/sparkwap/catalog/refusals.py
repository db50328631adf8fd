"""Errors of a publish or rollback: what differs, what state things are in, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from sparkwap.catalog.model import Identifier, Mismatch
from sparkwap.core.errors import CatalogError, PublishError


def _listed(head: str, mismatches: Sequence[Mismatch], way_on: str) -> str:
    lines = "".join(f"\n  {mismatch}" for mismatch in mismatches)
    return f"{head}{lines}\n{way_on}"


class PublishRefused(PublishError):
    """The tables are not what was audited; nothing was published, nothing has changed.

    Attributes:
        mismatches: Each thing that differs, with what was expected and found.
    """

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        way_on = "build and audit it again, on main as it is now."
        if any(mismatch.kind == "alike" for mismatch in mismatches):
            way_on = (
                "a reader could take one of these names for the other. Give one of them another "
                "`alias` or schema, and build the branch again; or drop in Spark what nobody reads "
                "any more, and publish the branch again: dbt run-operation wap_publish."
            )
        super().__init__(
            _listed(
                "Nothing was published: the catalog no longer holds what was audited.",
                self.mismatches,
                f"The audit branch is untouched: {way_on}",
            )
        )


class RollbackRefused(PublishError):
    """Tables moved on since the publish; nothing was rolled back, nothing has changed.

    Attributes:
        mismatches: Each thing that differs, with what was expected and found.
    """

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        super().__init__(
            _listed(
                "Nothing was rolled back: the catalog no longer holds what was published.",
                self.mismatches,
                "All tables stand as they were. Roll back the later publish first with "
                "`dbt run-operation wap_rollback`, or repair the tables by a new run.",
            )
        )

    def told(self, text: str) -> RollbackRefused:
        """The same refusal in the words of somebody who knows more."""
        better = RollbackRefused(self.mismatches)
        better.args = (text,)
        return better


class PublishTorn(PublishError):
    """A publish on a catalog without transactions could neither be completed nor wholly undone.

    Attributes:
        mismatches: What could not be moved, with what was expected and found.
        stayed: The tables that are published, as others have moved them on already.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], stayed: Sequence[Identifier]
    ) -> None:
        self.mismatches = tuple(mismatches)
        self.stayed = tuple(stayed)
        kept = ", ".join(".".join(name) for name in stayed)
        super().__init__(
            _listed(
                f"The publish {publish_id} was undone in part: others moved main of one table "
                f"while another was on its way, and wrote on what was published of: {kept}. All "
                "rows that readers see were audited, but not all of this run. Not published:",
                self.mismatches,
                "Build again with `dbt build`: it starts from main as it is now, and publishes "
                f"all tables together. In {kept} the rows of this run are there already: a model "
                "that appends without a unique key would add them once more, so leave it out by "
                "`--exclude`.",
            )
        )


class RollbackTorn(PublishError):
    """A rollback on a catalog without transactions left tables that others moved on meanwhile.

    Attributes:
        mismatches: What was not moved back, with what was expected and found.
        back: The tables and views that readers see as before the publish.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], back: Sequence[Identifier]
    ) -> None:
        self.publish_id = publish_id
        self.mismatches = tuple(mismatches)
        self.back = tuple(back)
        moved = ", ".join(".".join(name) for name in back)
        super().__init__(
            _listed(
                f"The publish {publish_id} was rolled back in part: {moved} are as before it. "
                "Others moved these on meanwhile, and they still have what was published:",
                self.mismatches,
                "See what came since and the ways on with `dbt run-operation wap_rollback --args "
                f"'{{run: {publish_id}}}'`: it takes what is left, and changes nothing while "
                "others' rows are on it.",
            )
        )

    def told(self, text: str) -> RollbackTorn:
        """The same in the words of somebody who knows more."""
        better = RollbackTorn(self.publish_id, self.mismatches, self.back)
        better.args = (text,)
        return better


class CommitUnknown(CatalogError):
    """The database did not say whether the transaction was committed."""


class PublishUnverified(CatalogError):
    """A publish was committed, and what was read after it is not what was published."""
