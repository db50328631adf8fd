"""The constraints of a model's contract, as queries of the rows that break them.

Spark and Iceberg enforce ``not null`` only. The gate counts the rows of these queries when a model
is built, so that a table that breaks a constraint is not published. NULL has SQL's meaning: it
equals no key, refers to no row, and breaks no check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.core.errors import ConfigError, GateError
from sparkwap.core.sqltext import quote

_KEYS = ("unique", "primary_key")
_REFERENCE = re.compile(
    r"\s*(?:references\s+)?(?P<to>\w+(?:\.\w+)+)\s*\((?P<columns>[\w\s,]+)\)\s*", re.IGNORECASE
)
"""A foreign key's `expression`: schema.table (columns)."""
ENFORCED = ("not_null", "check", "foreign_key", *_KEYS)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of a model or of one of its columns.

    Attributes:
        type: dbt's name of its type, one of ``ENFORCED``.
        columns: The columns that it is about; empty for a check.
        expression: The condition of a check.
        to: The other table of a foreign key, as dbt renders it or as it is written.
        of: The model that it belongs to, if that is not the built one.
    """

    type: str
    name: str | None
    columns: tuple[str, ...]
    expression: str
    to: str
    to_columns: tuple[str, ...]
    of: str | None = None

    def queries(self, table: str) -> dict[str, str]:
        """Return what is counted -> the query of the keys or rows that break the constraint."""
        names = [quote(column) for column in self.columns]
        keys, known = ", ".join(names), " and ".join(f"{name} is not null" for name in names)
        nulls = {
            f"rows where {column} is NULL": f"select {name} from {table} where {name} is null"
            for column, name in zip(self.columns, names, strict=True)
        }
        if self.type == "not_null":
            return nulls
        if self.type == "check":
            false = f"select * from {table} where not (\n{self.expression}\n)"
            return {"rows for which it is false": false}
        if self.type == "foreign_key":
            other = " and ".join(
                f"other.{quote(key)} = own.{name}"
                for key, name in zip(self.to_columns, names, strict=True)
            )
            orphans = (
                f"select {keys} from {table} as own where {known} "
                f"and not exists (select 1 from {self.to} as other where {other})"
            )
            return {f"rows that refer to no row of {self.to}": orphans}
        repeated = f"select {keys} from {table} where {known} group by {keys} having count(*) > 1"
        found = {"keys that occur more than once": repeated}
        return found | nulls if self.type == "primary_key" else found

    @property
    def words(self) -> str:
        """The constraint for messages: `primary_key (id)`."""
        what = self.expression if self.type == "check" else ", ".join(self.columns)
        named = f" {self.name}" if self.name else ""
        return f"{self.type}{named} ({what})" + (f" of {self.of}" if self.of else "")


def constraints_of(model: Mapping[str, Any]) -> list[Constraint]:
    """Return the enforced constraints of a model; none if its contract is not enforced.

    Args:
        model: dbt's node of the model, as a mapping.

    Raises:
        ConfigError: A constraint lacks what its type needs.
    """
    if not ((model.get("config") or {}).get("contract") or {}).get("enforced"):
        return []
    given = [(one, one.get("columns") or ()) for one in model.get("constraints") or ()]
    for column in (model.get("columns") or {}).values():
        given += [(one, [column["name"]]) for one in column.get("constraints") or ()]
    return [
        _constraint(model, one, tuple(columns)) for one, columns in given if _type(one) in ENFORCED
    ]


def _constraint(
    model: Mapping[str, Any], given: Mapping[str, Any], columns: tuple[str, ...]
) -> Constraint:
    kind, expression = _type(given), str(given.get("expression") or "")
    to, to_columns = str(given.get("to") or ""), tuple(given.get("to_columns") or ())
    written = _REFERENCE.fullmatch(expression) if kind == "foreign_key" and not to else None
    if written:
        to, to_columns = written["to"], tuple(map(str.strip, written["columns"].split(",")))
    found = Constraint(
        kind,
        given.get("name"),
        () if kind == "check" else columns,
        expression if kind == "check" else "",
        to,
        to_columns,
    )
    lacking = {
        "columns": kind != "check" and not columns,
        "expression": kind == "check" and not found.expression.strip(),
        "to": kind == "foreign_key" and not found.to,
        "to_columns": kind == "foreign_key" and len(found.to_columns) != len(columns),
    }
    for setting in (name for name, lacks in lacking.items() if lacks):
        wanted = "as many `to_columns` as columns" if setting == "to_columns" else f"`{setting}`"
        raise ConfigError(
            f"The constraint {found.words} of {model.get('name')} needs {wanted}. The table was "
            "built but not checked, so it is not published. Complete the constraint, and build "
            "again."
        )
    return found


def _type(given: Mapping[str, Any]) -> str:
    kind = given.get("type")
    return str(getattr(kind, "value", kind))


def require_kept(name: str, found: Iterable[tuple[Constraint, str, int]]) -> None:
    """Raise if a constraint does not hold.

    Args:
        found: A constraint, what was counted, and how many were found.
    """
    lines = [f"  {one.words}: {what}: {count:,}" for one, what, count in found if count]
    if lines:
        raise GateError(
            f"The candidate of {name} breaks its contract, so it is not published:\n"
            + "\n".join(lines)
        )
