"""What may and may not be relied on with a user's own server and catalog.

Pure: the adapter collects `LakeFacts`, `examine` judges them. A fact that could not be found
out is None, and is never taken for a good one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "warning", "not safe"]
Atomicity = Literal["transaction", "journal, together", "journal, one by one"]

SPARK_FLOOR = (4, 1)
ICEBERG_FLOOR = (1, 11)
DBT_FLOOR = (1, 11)
DBT_CEILING = (1, 12)
_DEFAULT_CACHE = "true"


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """What was seen of a server and its catalog; None where it could not be found out.

    Attributes:
        embedded: The server is sparkwap's own.
        dbt: dbt-core's version.
        catalog_error: Why the catalog could not be opened from here; None if it could.
        atomicity: How several tables are published.
        default_namespace: Whether the catalog has the namespace ``default``.
        warehouse: The warehouse's location.
        warehouse_error: Why it cannot be read and written from here; None if it can.
        sql_error: Why no SQL session could be opened or used; None if one could.
        spark: Spark's version.
        iceberg: Iceberg's version in Spark.
        dropped: Session settings that were asked for and did not arrive, with what is there.
        overwrite_mode: ``spark.sql.sources.partitionOverwriteMode`` in a session of ours.
        server_overwrite_mode: The same in a session that asks for nothing.
        cache: ``cache-enabled`` of Spark's catalog, as Spark has it; empty if it is not set.
        probe: What `sparkwap.gate.isolation_check` found wrong; empty for nothing.
        stamped: Whether the run's id arrived in the summary of the snapshot it wrote.
        connect_url: Whether the profile has a Spark Connect endpoint.
        connect_error: Why it could not be used; None if it could.
        connect_dropped: As ``dropped``, in a Connect session.
        connect_sees_table: Whether a Connect session sees the table that SQL has made.
    """

    embedded: bool
    dbt: str
    catalog_error: str | None = None
    atomicity: Atomicity | None = None
    default_namespace: bool | None = None
    warehouse: str | None = None
    warehouse_error: str | None = None
    sql_error: str | None = None
    spark: str | None = None
    iceberg: str | None = None
    dropped: Mapping[str, str] | None = None
    overwrite_mode: str | None = None
    server_overwrite_mode: str | None = None
    cache: str | None = None
    probe: str | None = None
    stamped: bool | None = None
    connect_url: bool = False
    connect_error: str | None = None
    connect_dropped: Mapping[str, str] | None = field(default=None)
    connect_sees_table: bool | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer.

    Attributes:
        level: ``not safe`` where a promise does not hold.
        what: What was looked at, and how it is.
        meaning: What is, or is not, guaranteed by that.
        mend: The way to mend it; empty where nothing is to be done.
    """

    level: Level
    what: str
    meaning: str = ""
    mend: str = ""


def examine(facts: LakeFacts) -> list[Finding]:
    """The findings, in the order of the way from here to the tables."""
    return [
        *_versions(facts),
        *_catalog(facts),
        *_session(facts),
        *_gate(facts),
        *_connect(facts),
    ]


def safe(findings: Iterable[Finding]) -> bool:
    """Whether the promises hold."""
    return all(finding.level != "not safe" for finding in findings)


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """The answer as it is printed."""
    listed = list(findings)
    for finding in listed:
        yield f"{finding.level:<9} {finding.what}"
        if finding.meaning:
            yield f"          {finding.meaning}"
        if finding.mend:
            yield f"          mend it: {finding.mend}"
    worst = [level for level in ("not safe", "warning") if any(f.level == level for f in listed)]
    told = {
        "not safe": "Not safe: do not build here before what is marked so is mended.",
        "warning": "Safe, with what is said under the warnings.",
    }
    yield told[worst[0]] if worst else "All well: the promises of the gate hold here."


# -- the parts -----------------------------------------------------------------------------------


def _versions(facts: LakeFacts) -> Iterator[Finding]:
    dbt = _numbers(facts.dbt)
    if dbt is None or not DBT_FLOOR <= dbt < DBT_CEILING:
        yield Finding(
            "not safe",
            f"dbt-core is {facts.dbt}, tested are {_dotted(DBT_FLOOR)}.x",
            "The gate reads dbt's results; another version may tell them otherwise.",
            f"pip install 'dbt-core~={_dotted(DBT_FLOOR)}.0'",
        )
    else:
        yield Finding("ok", f"dbt-core {facts.dbt}")
    if facts.sql_error is not None:
        return
    yield from _version("Spark", facts.spark, SPARK_FLOOR)
    yield from _version("Iceberg in Spark", facts.iceberg, ICEBERG_FLOOR)


def _version(name: str, version: str | None, floor: tuple[int, int]) -> Iterator[Finding]:
    numbers = _numbers(version)
    if numbers is None:
        yield Finding(
            "warning",
            f"the version of {name} is unknown",
            f"Tested from {_dotted(floor)} on.",
            f"see that the server runs {name} {_dotted(floor)} or later",
        )
    elif numbers < floor:
        yield Finding(
            "not safe",
            f"{name} is {version}, needed is {_dotted(floor)} or later",
            "Older ones write past audit branches in cases that later ones have mended.",
            f"upgrade {name} on the server",
        )
    else:
        yield Finding("ok", f"{name} {version}")


def _catalog(facts: LakeFacts) -> Iterator[Finding]:
    if facts.catalog_error is not None:
        yield Finding(
            "not safe",
            f"the catalog cannot be opened from here: {facts.catalog_error}",
            "The gate moves tables there, so nothing can be published.",
            "correct `catalog` in the profile",
        )
        return
    yield _atomicity(facts.atomicity)
    if facts.default_namespace is False:
        yield Finding(
            "warning",
            "the catalog has no namespace `default`",
            "Thrift clients begin with `use default`, so their sessions may not open.",
            "create it: create namespace default",
        )
    if facts.warehouse_error is not None:
        yield Finding(
            "not safe",
            f"the warehouse {facts.warehouse or ''} cannot be read and written from here: "
            f"{facts.warehouse_error}",
            "The ledger is written from here, so a publish would fail.",
            "give `catalog` in the profile the location and the keys of the file store",
        )
    elif facts.warehouse is not None:
        yield Finding("ok", f"the warehouse {facts.warehouse} can be read and written from here")


def _atomicity(atomicity: Atomicity | None) -> Finding:
    if atomicity == "transaction":
        return Finding(
            "ok",
            "the catalog commits several tables in one transaction",
            "A publish is there for readers as a whole, or not at all.",
        )
    if atomicity == "journal, together":
        return Finding(
            "warning",
            "the catalog offers multi-table commits, which are looked at after each publish",
            "A publish ends as a whole or not at all, by its journal; if the server is not atomic, "
            "or while new tables and views are moved in, readers may see a mixture for a moment.",
            "see docs/catalogs/rest.md; a SQL catalog has no such moment",
        )
    return Finding(
        "warning",
        "the catalog commits one table at a time",
        "A publish ends as a whole or not at all, by its journal, but readers may see a mixture "
        "while it is on its way.",
        "see docs/catalogs/journal.md; a SQL catalog has no such moment",
    )


def _session(facts: LakeFacts) -> Iterator[Finding]:
    if facts.sql_error is not None:
        yield Finding(
            "not safe",
            f"no SQL session: {facts.sql_error}",
            "Nothing can be built, and nothing below was looked at.",
            "correct `host`, `port` and the credentials in the profile, and see that the server "
            "is up",
        )
        return
    yield from _settings("SQL", facts.dropped)
    mode = (facts.overwrite_mode or "").lower()
    if mode != "static":
        yield Finding(
            "not safe",
            f"spark.sql.sources.partitionOverwriteMode is {mode or 'unknown'} in a run's session",
            "A table that is built anew would keep old partitions.",
            "remove it from `server_side_parameters`, or let the server take it from the session",
        )
    elif (facts.server_overwrite_mode or "static").lower() != "static":
        yield Finding(
            "ok",
            "the server's own partitionOverwriteMode is dynamic; a run's sessions set it to static",
        )
    yield from _cache(facts)


def _settings(kind: str, dropped: Mapping[str, str] | None) -> Iterator[Finding]:
    if dropped is None:
        yield Finding(
            "not safe",
            f"whether {kind} sessions keep their settings could not be found out",
            "Without spark.wap.branch, builds write to main.",
            "see the error above",
        )
    elif dropped:
        told = ", ".join(f"{key} is {value or 'not set'}" for key, value in sorted(dropped.items()))
        yield Finding(
            "not safe",
            f"the server drops settings of {kind} sessions: {told}",
            "Without spark.wap.branch, builds write to main.",
            "let the server take the settings of a session (a proxy or its configuration drops "
            "them)",
        )
    else:
        yield Finding("ok", f"{kind} sessions keep their settings")


def _cache(facts: LakeFacts) -> Iterator[Finding]:
    if facts.cache is None:
        return
    if (facts.cache or _DEFAULT_CACHE).lower() == "false":
        yield Finding("ok", "Spark's catalog cache is off")
        return
    yield Finding(
        "warning",
        "Spark's catalog cache is on",
        "A reader's session that has read a table sees what was published up to 30 seconds later, "
        "tables of one publish not all at once. Runs have it off in their own sessions.",
        "set spark.sql.catalog.<name>.cache-enabled=false on the server",
    )


def _gate(facts: LakeFacts) -> Iterator[Finding]:
    if facts.sql_error is not None or facts.catalog_error is not None:
        return
    if facts.probe is None:
        yield Finding(
            "not safe",
            "whether writes stay on their audit branch could not be found out",
            "A run is refused until this is known.",
            "see the errors above",
        )
    elif facts.probe:
        yield Finding(
            "not safe",
            facts.probe,
            "Readers would see rows before they are audited. A run is refused.",
            "name the same catalog in Spark and in the profile (`catalog`, `catalog_name`); a "
            "catalog without Iceberg branches cannot be protected",
        )
    else:
        yield Finding(
            "ok",
            "a row written on an audit branch stays there, and Spark and the gate see one catalog",
            "No unaudited row gets to main.",
        )
        if facts.stamped is False:
            yield Finding(
                "warning",
                "a snapshot does not carry the id of the run that wrote it",
                "Receipts stay complete in the ledger; the table's own history lacks the run.",
                "let the server take spark.sql.iceberg.snapshot-property.* from the session",
            )


def _connect(facts: LakeFacts) -> Iterator[Finding]:
    if not facts.connect_url:
        yield Finding(
            "warning",
            "the profile names no Spark Connect endpoint",
            "SQL models are built and gated; Python models cannot run.",
            "set `connect_url: sc://host:port` in the profile",
        )
        return
    if facts.connect_error is not None:
        yield Finding(
            "warning",
            f"Spark Connect cannot be used: {facts.connect_error}",
            "SQL models are built and gated; Python models cannot run.",
            "correct `connect_url` in the profile, and see that the endpoint is up",
        )
        return
    yield from _settings("Connect", facts.connect_dropped)
    if facts.connect_sees_table is False:
        yield Finding(
            "not safe",
            "Spark Connect sees another catalog than SQL sessions do",
            "A Python model would be written where the gate does not look.",
            "point both to one Spark server, or give both the same catalog settings",
        )


def _numbers(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"\D*(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
