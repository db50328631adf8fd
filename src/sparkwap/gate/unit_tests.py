"""Decides what the expected rows of a dbt unit test are compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkwap.core.errors import ConfigError
from sparkwap.ledger.manifests import EXPECT


@dataclass(frozen=True, slots=True)
class UnitTest:
    """A unit test.

    Attributes:
        strategy: The model's incremental strategy; None for the default.
        gives_this: Whether it gives the rows of `this`.
        is_incremental: Its override of `is_incremental`; None if it has none.
        snapshots: The names of the snapshots that take all rows of the model.
    """

    name: str
    meta: Mapping[str, Any]
    materialized: str
    strategy: str | None = None
    gives_this: bool = False
    is_incremental: bool | None = None
    snapshots: Collection[str] = ()


def compared(test: UnitTest) -> Literal["select", "table", "snapshot"]:
    """Return what is compared with the expected rows.

    Returns:
        ``select``: the rows of the model's select, which may also be all that its table has.
        ``table``: the rows of its table, to which the build adds the select's. ``snapshot``: the
        rows of a snapshot of the model.
    """
    expect = test.meta.get(EXPECT, "select")
    if expect in test.snapshots:
        return "snapshot"
    if expect not in ("select", "table"):
        raise ConfigError(
            f"{EXPECT} is {expect!r} in the unit test {test.name}; it must be 'select' (the rows "
            "of the model's select, dbt's default), 'table' (the rows of its table after the "
            "build), or the name of a snapshot with the model as its `relation` "
            f"({', '.join(sorted(test.snapshots)) or 'there is none'})."
        )
    if expect == "select" or test.materialized in ("table", "view", "ephemeral"):
        return "select"
    if test.materialized != "incremental":
        raise ConfigError(
            f"The unit test {test.name} has {EXPECT}: table, but its model is materialized as "
            f"{test.materialized}. Remove it, to compare with the rows of the select."
        )
    if not test.gives_this or test.is_incremental is False:
        return "select"
    if test.strategy == "microbatch":
        raise ConfigError(
            f"The unit test {test.name} has {EXPECT}: table, but dbt runs no batch of a microbatch "
            "model in a unit test, so it is not known which rows a batch would replace. Remove it, "
            "to compare with the rows of the select."
        )
    return "table"
