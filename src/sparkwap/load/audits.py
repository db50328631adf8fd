"""The audits of a load: what they are, and what they say of rows.

They are those of dbt's own tests that need no engine: ``not_null``, ``unique``,
``accepted_values`` and ``accepted_range``, with dbt's meaning. They come from the tests of a dbt
project, or from a small YAML file in the form of dbt's ``schema.yml``, or from arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from sparkwap.catalog.model import Identifier
from sparkwap.ledger import LOADED
from sparkwap.load.errors import LoadError
from sparkwap.run import TestFact

Kind = Literal["not_null", "unique", "accepted_values", "accepted_range"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_ALLOWED: Mapping[Kind, frozenset[str]] = {
    "not_null": frozenset(),
    "unique": frozenset(),
    "accepted_values": frozenset({"values", "quote"}),
    "accepted_range": frozenset({"min_value", "max_value", "inclusive"}),
}
# What changes the meaning of a dbt test in ways that only dbt knows.
_PLAIN_CONFIG: Mapping[str, Any] = {
    "where": None,
    "limit": None,
    "fail_calc": "count(*)",
    "warn_if": "!= 0",
    "error_if": "!= 0",
}
_SEE_THROUGH = frozenset({"view", "ephemeral"})


@dataclass(frozen=True)
class Audit:
    """A rule on one column.

    Attributes:
        test_id: dbt's unique id of the test, or one made up.
        name: For people.
        kind: Which rule.
        column: The column.
        values: The accepted values, for ``accepted_values``.
        least: The least accepted value, for ``accepted_range``; None for none.
        most: The greatest one, likewise.
        inclusive: Whether these two are accepted themselves.
        severity: ``error``, or ``warn``.
    """

    test_id: str
    name: str
    kind: Kind
    column: str
    values: tuple[Any, ...] = ()
    least: Any = None
    most: Any = None
    inclusive: bool = True
    severity: Literal["error", "warn"] = "error"


@dataclass(frozen=True)
class Audits:
    """The audits of a table, and what else the gate expects of it.

    Attributes:
        node_id: dbt's unique id of the table, or one made up; its candidates go by it.
        audits: Those that a load can run.
        tests: All tests that read the table, those that only dbt can run included.
    """

    node_id: str
    audits: tuple[Audit, ...] = ()
    tests: tuple[TestFact, ...] = ()

    def beyond(self) -> list[str]:
        """Names of the tests that need dbt."""
        own = {one.test_id for one in self.audits}
        return sorted(test.name for test in self.tests if test.test_id not in own)

    def also(self, audits: Sequence[Audit]) -> Audits:
        """The same with more audits."""
        return Audits(
            self.node_id, (*self.audits, *audits), (*self.tests, *_facts(self.node_id, audits))
        )


def _facts(node_id: str, audits: Iterable[Audit]) -> list[TestFact]:
    reads = frozenset({node_id})
    return [TestFact(one.test_id, one.name, "data", reads, one.severity) for one in audits]


def own_node(identifier: Identifier) -> str:
    """The id of a table that no dbt project knows."""
    return f"{LOADED}{identifier[0]}.{identifier[1]}"


# ---------------------------------------------------------------- where they come from


def from_yaml(text: str, identifier: Identifier) -> list[Audit]:
    """Audits in the form of dbt's ``schema.yml``: ``columns``, each with its ``data_tests``.

    Raises:
        LoadError: It is no such thing, or names a test that a load cannot run; all faults at once.
    """
    import yaml

    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise _faulty([f"it is not YAML: {error}"]) from error
    columns = content.get("columns") if isinstance(content, Mapping) else None
    if not isinstance(columns, list):
        raise _faulty(["it has no list `columns`"])
    faults: list[str] = []
    found: list[Audit] = []
    for column in columns:
        name = column.get("name") if isinstance(column, Mapping) else None
        if not isinstance(name, str):
            faults.append(f"a column without a name: {column!r}")
            continue
        for test in column.get("data_tests") or column.get("tests") or ():
            try:
                found.append(_from_entry(identifier, name, test))
            except ValueError as error:
                faults.append(f"column {name}: {error}")
    if faults:
        raise _faulty(faults)
    return found


def _faulty(faults: Sequence[str]) -> LoadError:
    listed = "".join(f"\n  {fault}" for fault in faults)
    return LoadError(
        f"The audits cannot be used, so nothing was loaded:{listed}\nA file of audits looks like "
        "this: {columns: [{name: id, data_tests: [not_null, unique]}]}; the tests are "
        f"{', '.join(KINDS)}."
    )


def _from_entry(identifier: Identifier, column: str, test: Any) -> Audit:
    name, given = (test, {}) if isinstance(test, str) else _only(test)
    given = {**given, **(given.get("arguments") or {})}
    severity = (given.get("config") or {}).get("severity", given.get("severity", "error"))
    for key in ("arguments", "config", "severity"):
        given.pop(key, None)
    kind = str(name).rpartition(".")[2]
    return _audit(f"{own_node(identifier)}.{column}.{kind}", kind, column, given, severity)


def _only(test: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(test, Mapping) or len(test) != 1:
        raise ValueError(f"{test!r} is no test")
    ((name, given),) = test.items()
    return str(name), dict(given or {})


def _audit(
    test_id: str, kind: str, column: str, given: Mapping[str, Any], severity: Any, name: str = ""
) -> Audit:
    known = next((one for one in KINDS if one == kind), None)
    if known is None:
        raise ValueError(f"a load knows no test {kind}")
    unknown = sorted(set(given) - _ALLOWED[known])
    if unknown:
        raise ValueError(f"{kind} has {', '.join(unknown)}, of which a load knows nothing")
    level = str(severity).lower()
    if level not in ("error", "warn"):
        raise ValueError(f"{kind} has the severity {severity!r}; legal: error, warn")
    values = given.get("values")
    if known == "accepted_values" and (not isinstance(values, list) or not values):
        raise ValueError("accepted_values needs a list of `values`")
    least, most = given.get("min_value"), given.get("max_value")
    for bound in (least, most):
        if isinstance(bound, str) and not _is_number(bound):
            raise ValueError(f"accepted_range compares with {bound!r}, which only SQL understands")
    if known == "accepted_range" and least is None and most is None:
        raise ValueError("accepted_range needs min_value or max_value")
    return Audit(
        test_id,
        name or f"{known}_{column}",
        known,
        column,
        # dbt compares texts, unless told that the values need no quotes.
        tuple(values or ()),
        least,
        most,
        bool(given.get("inclusive", True)),
        "warn" if level == "warn" else "error",
    )


def _is_number(text: str) -> bool:
    try:
        Decimal(text)
    except InvalidOperation:
        return False
    return True


def from_arguments(
    identifier: Identifier,
    not_null: Sequence[str] = (),
    unique: Sequence[str] = (),
    accepted: Sequence[str] = (),
    between: Sequence[str] = (),
) -> list[Audit]:
    """Audits as the command line gives them.

    Args:
        identifier: The table.
        not_null: Columns.
        unique: Columns.
        accepted: ``column=a,b,c`` each.
        between: ``column=least..most`` each; either end may be left out.

    Raises:
        LoadError: One of them cannot be read.
    """
    wanted: list[tuple[str, str, dict[str, Any]]] = []
    wanted += [("not_null", column, {}) for column in not_null]
    wanted += [("unique", column, {}) for column in unique]
    faults = []
    for text in accepted:
        column, mark, values = text.partition("=")
        if not mark:
            faults.append(f"--accepted {text}: it looks like column=a,b,c")
        wanted.append(("accepted_values", column, {"values": values.split(",")}))
    for text in between:
        column, _, bounds = text.partition("=")
        least, mark, most = bounds.partition("..")
        if not mark:
            faults.append(f"--between {text}: it looks like column=0..100, column=0.. or ..100")
        wanted.append(
            ("accepted_range", column, {"min_value": least or None, "max_value": most or None})
        )
    found = []
    for kind, column, given in wanted:
        try:
            test_id = f"{own_node(identifier)}.{column}.{kind}"
            found.append(_audit(test_id, kind, column, given, "error"))
        except ValueError as error:
            faults.append(f"column {column}: {error}")
    if faults:
        raise _faulty(faults)
    return found


def from_manifest(manifest: Mapping[str, Any], identifier: Identifier) -> Audits:
    """The tests of a dbt project that read a table.

    Args:
        manifest: dbt's ``manifest.json``.
        identifier: The table; a source of the project, or nothing that it knows.

    Raises:
        LoadError: A model, seed or snapshot of the project builds it.
    """
    builder = next(
        (
            node
            for node in manifest["nodes"].values()
            if node["resource_type"] in ("model", "seed", "snapshot")
            and _same((node["schema"], node["alias"]), identifier)
        ),
        None,
    )
    if builder is not None:
        raise LoadError(
            f"{'.'.join(identifier)} is built by the {builder['resource_type']} "
            f"{builder['name']}, whose next build would not know of the file's rows. Nothing was "
            "loaded. Load a table that it reads as a source, and build."
        )
    node_id = next(
        (
            key
            for key, source in manifest.get("sources", {}).items()
            if _same((source["schema"], source["identifier"]), identifier)
        ),
        None,
    )
    if node_id is None:
        return Audits(own_node(identifier))
    readers = [
        node
        for node in manifest["nodes"].values()
        if node["resource_type"] == "test" and node_id in _reads(manifest, node)
    ]
    found = [audit for node in readers if (audit := _from_node(node, node_id)) is not None]
    own = {audit.test_id: audit for audit in found}
    tests = [
        TestFact(
            node["unique_id"],
            node["name"],
            "data",
            frozenset(_reads(manifest, node)),
            str(node["config"].get("severity", "error")).lower(),
        )
        for node in readers
    ]
    return Audits(node_id, tuple(own.values()), (*tests, *_disabled(manifest, node_id)))


def _from_node(node: Mapping[str, Any], node_id: str) -> Audit | None:
    """A test of dbt's as an audit; None if it is one that only dbt can run."""
    metadata = node.get("test_metadata") or {}
    given = dict(metadata.get("kwargs") or {})
    column = given.pop("column_name", None)
    given.pop("model", None)
    config = node.get("config") or {}
    plain = all(config.get(key, usual) == usual for key, usual in _PLAIN_CONFIG.items())
    if metadata.get("namespace") not in (None, "dbt_utils") or not plain or column is None:
        return None
    if list((node.get("depends_on") or {}).get("nodes") or ()) != [node_id]:
        return None
    try:
        return _audit(
            node["unique_id"],
            str(metadata.get("name")),
            str(column),
            given,
            config.get("severity", "error"),
            node["name"],
        )
    except ValueError:
        return None


def _reads(manifest: Mapping[str, Any], node: Mapping[str, Any]) -> set[str]:
    """What a test reads, looking through views and ephemeral models as the gate does."""
    found: set[str] = set()
    waiting = list((node.get("depends_on") or {}).get("nodes") or ())
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        above = manifest["nodes"].get(one)
        if above is not None and above["config"].get("materialized") in _SEE_THROUGH:
            waiting += (above.get("depends_on") or {}).get("nodes") or ()
    return found


def _disabled(manifest: Mapping[str, Any], node_id: str) -> Iterator[TestFact]:
    """The tests of a source that are switched off."""
    source = manifest["sources"][node_id]
    names = [source["source_name"], source["name"]]
    for nodes in (manifest.get("disabled") or {}).values():
        for node in nodes:
            if node["resource_type"] == "test" and names in node.get("sources", ()):
                reads = frozenset({node_id})
                yield TestFact(node["unique_id"], node["name"], "data", reads, "", disabled=True)


def _same(one: tuple[Any, Any], other: Identifier) -> bool:
    return tuple(str(part).lower() for part in one) == tuple(part.lower() for part in other)


# ---------------------------------------------------------------- what they say


@dataclass
class Tally:
    """The rows that fail an audit, counted batch by batch.

    Attributes:
        audit: The audit.
        failures: How many rows fail it, as dbt counts; of ``unique`` and ``accepted_values`` how
            many values.
    """

    audit: Audit
    failures: int = 0
    _seen: list[pa.Array] = field(default_factory=list)

    def add(self, column: pa.ChunkedArray | pa.Array) -> None:
        """Count the values of a batch."""
        kind = self.audit.kind
        if kind == "not_null":
            self.failures += column.null_count
        elif kind == "unique":
            self._seen.append(column.drop_null())
        elif kind == "accepted_values":
            # Those that are there once are enough to keep.
            self._seen.append(column.drop_null().unique())
        else:
            self.failures += self._outside(column.drop_null())

    def done(self) -> Tally:
        """The count after the last batch."""
        if self._seen:
            values = pa.chunked_array(self._seen)
            self._seen = []
            if self.audit.kind == "unique":
                times = values.value_counts().field("counts")
                self.failures = pc.sum(pc.greater(times, 1)).as_py() or 0
            else:
                legal = set(map(_text, self.audit.values))
                self.failures = sum(_text(one) not in legal for one in values.unique().to_pylist())
        return self

    def _outside(self, column: pa.ChunkedArray | pa.Array) -> int:
        outside = 0
        for bound, compare in (
            (self.audit.least, pc.less if self.audit.inclusive else pc.less_equal),
            (self.audit.most, pc.greater if self.audit.inclusive else pc.greater_equal),
        ):
            if bound is not None:
                outside += pc.sum(compare(column, _scalar(bound, column.type))).as_py() or 0
        # NaN compares with nothing, and is in no range.
        if pa.types.is_floating(column.type):
            outside += pc.sum(pc.is_nan(column)).as_py() or 0
        return outside


def _scalar(bound: Any, kind: pa.DataType) -> pa.Scalar:
    """A bound as the column's type; a number with a fraction as one that can hold it."""
    number = Decimal(str(bound)) if _is_number(str(bound)) else None
    if number is not None and pa.types.is_integer(kind):
        whole = number == number.to_integral_value()
        return pa.scalar(int(number)) if whole else pa.scalar(float(number))
    if number is not None and pa.types.is_floating(kind):
        return pa.scalar(float(number), kind)
    if number is not None and pa.types.is_decimal(kind):
        return pa.scalar(number)
    if number is not None:
        raise pa.ArrowTypeError(f"it is {kind}, and {bound} is a number")
    return pa.scalar(bound).cast(kind)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tally(audits: Sequence[Audit], batches: Iterable[pa.RecordBatch]) -> list[Tally]:
    """What the audits say of rows.

    Raises:
        LoadError: A column lacks, or cannot be compared with a bound.
    """
    tallies = [Tally(audit) for audit in audits]
    for batch in batches:
        for one in tallies:
            if one.audit.column not in batch.schema.names:
                raise LoadError(f"The audit {one.audit.name} is on {one.audit.column}, which lacks")
            try:
                one.add(batch.column(one.audit.column))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise LoadError(
                    f"The audit {one.audit.name} cannot look at {one.audit.column}: {error}"
                ) from error
    return [one.done() for one in tallies]
