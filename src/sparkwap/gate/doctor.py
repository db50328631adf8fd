"""The decisions of `sparkwap doctor`: which promises hold with a user's server and catalog.

The adapter collects `LakeFacts`, and `examine` decides from them alone. A fact that is not known is
None, and None is never safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "not safe"]
Atomicity = Literal["transaction", "journal, together", "journal, one by one"]

SPARK_FLOOR = (3, 5)
CONNECT_FLOOR = (4, 0)
ICEBERG_FLOOR = (1, 11)
DBT_FLOOR = (1, 11)
DBT_CEILING = (1, 12)


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """Facts about a server and its catalog; None for a fact that is not known.

    Attributes:
        catalog_error: The error when this machine opens the catalog; None for none.
        warehouse_error: The error when this machine reads and writes the warehouse; None for none.
        sql_error: The error of a SQL session; None for none.
        dropped: The session settings that the server has ignored, with their values there.
        overwrite_mode: ``spark.sql.sources.partitionOverwriteMode`` in a session of a run.
        server_overwrite_mode: The same in a session without settings.
        cache: ``cache-enabled`` of Spark's catalog; empty if it is not set.
        probe: The problem that `sparkwap.gate.isolation_check` found; empty for none.
        probe_error: The error that ended the probe; None for none.
        stamped: Whether the summary of the probe's snapshot has the run's id.
        clones: Why the catalog refuses a clone of a table; empty if it takes one, None if it was
            not tried.
        connect_dropped: As ``dropped``, in a Connect session.
        connect_sees_table: Whether a Connect session can read the table that SQL has created.
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
    probe_error: str | None = None
    stamped: bool | None = None
    clones: str | None = None
    connect_url: bool = False
    connect_error: str | None = None
    connect_dropped: Mapping[str, str] | None = None
    connect_sees_table: bool | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the doctor.

    Attributes:
        level: ``not safe`` if a promise does not hold.
        mend: How to fix it; empty if nothing is to be done.
    """

    level: Level
    what: str
    meaning: str = ""
    mend: str = ""


def examine(facts: LakeFacts) -> list[Finding]:
    """Return the findings, in order from this machine to the tables."""
    return [
        *_versions(facts),
        *_catalog(facts),
        *_session(facts),
        *_gate(facts),
        *_clones(facts.clones),
        *_connect(facts),
    ]


def client_problem(server: str, client: str) -> str | None:
    """Return why a Spark Connect client cannot be used with a server; None if it can.

    A server ignores what it does not know of a newer client's plans (Protocol Buffers skip unknown
    fields), so its result may be another. Spark promises only that later servers understand a
    client.
    """
    has, sends = _numbers(server), _numbers(client)
    if has is None or sends is None:
        return None
    if has < CONNECT_FLOOR:
        return (
            f"Python models need a server with Spark {_dotted(CONNECT_FLOOR)} or later, and this "
            f"one has {_dotted(has)}."
        )
    if has < sends:
        return (
            f"The server has Spark {_dotted(has)}, which does not know all that the Spark Connect "
            f"client of PySpark {_dotted(sends)} sends. Run dbt for this target in an environment "
            f"with 'pyspark-client~={_dotted(has)}.0' and without pyspark."
        )
    return None


def safe(findings: Iterable[Finding]) -> bool:
    """Return whether the gate's promises hold."""
    return all(finding.level != "not safe" for finding in findings)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Return the lines to print."""
    for finding in findings:
        yield f"{finding.level:<9} {finding.what}"
        if finding.meaning:
            yield f"          {finding.meaning}"
        if finding.mend:
            yield f"          fix: {finding.mend}"
    if not safe(findings):
        yield "Not safe: fix the findings marked `not safe` before you build here."
    elif any(finding.level == "warning" for finding in findings):
        yield "Safe, except for the warnings above."
    else:
        yield "Safe: all promises of the gate hold here."


# -- the parts -----------------------------------------------------------------------------------


def _versions(facts: LakeFacts) -> Iterator[Finding]:
    dbt = _numbers(facts.dbt)
    if dbt is None or not DBT_FLOOR <= dbt < DBT_CEILING:
        yield Finding(
            "not safe",
            f"dbt-core is {facts.dbt}, but only {_dotted(DBT_FLOOR)}.x is tested",
            "The gate reads dbt's results, whose format may differ in another version.",
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
            f"Versions from {_dotted(floor)} are tested.",
            f"make sure that the server runs {name} {_dotted(floor)} or later",
        )
    elif numbers < floor:
        yield Finding(
            "not safe",
            f"{name} is {version}, but {_dotted(floor)} or later is required",
            "Whether writes stay on their audit branch there was never tested.",
            f"upgrade {name} on the server",
        )
    else:
        yield Finding("ok", f"{name} {version}")


def _catalog(facts: LakeFacts) -> Iterator[Finding]:
    if facts.catalog_error is not None:
        yield Finding(
            "not safe",
            f"the catalog cannot be opened from this machine: {facts.catalog_error}",
            "The gate publishes through the catalog, so nothing can be published.",
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
            f"the warehouse {facts.warehouse or ''} cannot be read and written from this machine: "
            f"{facts.warehouse_error}",
            "This machine writes the ledger there, so a publish would fail.",
            "give `catalog` in the profile the location and the keys of the file store",
        )
    elif facts.warehouse is not None:
        yield Finding("ok", f"this machine can read and write the warehouse {facts.warehouse}")


def _atomicity(atomicity: Atomicity | None) -> Finding:
    if atomicity == "transaction":
        return Finding(
            "ok",
            "the catalog commits several tables in one transaction",
            "Readers see all tables of a publish, or none.",
        )
    if atomicity == "journal, together":
        return Finding(
            "warning",
            "the catalog has multi-table commits, whose result each publish checks",
            "The journal completes each publish as a whole, or undoes it. If the server's commits "
            "are not atomic, or while new tables and views are created, readers may briefly see "
            "new and old tables together.",
            "see docs/catalogs/rest.md; a SQL catalog publishes in one transaction",
        )
    return Finding(
        "warning",
        "the catalog commits one table at a time",
        "The journal completes each publish as a whole, or undoes it. During the publish, readers "
        "may see new and old tables together.",
        "see docs/catalogs/journal.md; a SQL catalog publishes in one transaction",
    )


def _session(facts: LakeFacts) -> Iterator[Finding]:
    if facts.sql_error is not None:
        yield Finding(
            "not safe",
            f"no SQL session: {facts.sql_error}",
            "Nothing can be built, and the following checks were skipped.",
            "correct `host`, `port` and the credentials in the profile, and make sure that the "
            "server is up",
        )
        return
    yield from _settings("SQL", facts.dropped)
    mode = (facts.overwrite_mode or "").lower()
    if mode != "static":
        yield Finding(
            "not safe",
            f"spark.sql.sources.partitionOverwriteMode is {mode or 'unknown'} in a run's session",
            "A full build of a table would keep old partitions.",
            "remove it from `server_side_parameters`, or let the server accept the session's value",
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
            f"the doctor could not check whether {kind} sessions keep their settings",
            "Without spark.wap.branch, builds write to main.",
            "fix the other findings, then run `sparkwap doctor` again",
        )
    elif dropped:
        kept = ", ".join(f"{key} is {value or 'not set'}" for key, value in sorted(dropped.items()))
        yield Finding(
            "not safe",
            f"the server drops settings of {kind} sessions: {kept}",
            "Without spark.wap.branch, builds write to main.",
            "let the server accept session settings (a proxy or its configuration drops them)",
        )
    else:
        yield Finding("ok", f"{kind} sessions keep their settings")


def _cache(facts: LakeFacts) -> Iterator[Finding]:
    if facts.cache is None:
        return
    if facts.cache.lower() == "false":
        yield Finding("ok", "Spark's catalog cache is off")
        return
    yield Finding(
        "warning",
        "Spark's catalog cache is on",
        "A reader's session may see a publish up to 30 seconds late, and not all of its tables at "
        "the same time. Runs disable the cache in their own sessions.",
        "set spark.sql.catalog.<name>.cache-enabled=false on the server",
    )


def _clones(refusal: str | None) -> Iterator[Finding]:
    if refusal:
        yield Finding(
            "warning",
            f"the catalog refuses clones of tables: {refusal}",
            "A model whose columns or layout change ends in an error before it is built, and "
            "maintenance compacts no table.",
            "on Apache Polaris, set `polaris.config.allow.unstructured.table.location` of the "
            "catalog to true; see docs/catalogs/rest.md",
        )
    elif refusal is not None:
        yield Finding("ok", "the catalog takes clones, on which changed columns are built")


def _gate(facts: LakeFacts) -> Iterator[Finding]:
    if facts.sql_error is not None or facts.catalog_error is not None:
        return
    if facts.probe is None:
        why = f": {facts.probe_error}" if facts.probe_error and not facts.warehouse_error else ""
        yield Finding(
            "not safe",
            f"the doctor could not check whether writes stay on their audit branch{why}",
            "Runs are refused until this is known.",
            "make sure that the server can write to the catalog and the warehouse, then run "
            "`sparkwap doctor` again",
        )
    elif facts.probe:
        yield Finding(
            "not safe",
            facts.probe,
            "Readers would see rows before they are audited. Runs are refused.",
            "set the same catalog in Spark and in the profile (`catalog`, `catalog_name`); a "
            "catalog without Iceberg branches cannot be protected",
        )
    else:
        yield Finding(
            "ok",
            "a row written on an audit branch stays there; Spark and the gate use the same catalog",
            "No unaudited row reaches main.",
        )
        if facts.stamped is False:
            yield Finding(
                "warning",
                "the summary of a snapshot does not carry the id of the run that wrote it",
                "The ledger has it. But rows that a statement of a killed command still writes at "
                "the server cannot be told from those of a retry on the same branch.",
                "use Spark 4.0 or later, which accept spark.sql.iceberg.snapshot-property.* from "
                "the session; until then, after a killed command wait until its statement has "
                "ended at the server, or discard its branch and build anew",
            )


def _connect(facts: LakeFacts) -> Iterator[Finding]:
    if not facts.connect_url:
        yield Finding(
            "warning",
            "the profile has no Spark Connect endpoint",
            "SQL models are built and gated; Python models cannot run.",
            "set `connect_url: sc://host:port` in the profile",
        )
        return
    if facts.connect_error is not None:
        yield Finding(
            "warning",
            f"Spark Connect cannot be used: {facts.connect_error}",
            "SQL models are built and gated; Python models cannot run.",
            "see the message; if nothing answers, correct `connect_url` in the profile, or start "
            "the endpoint",
        )
        return
    if facts.connect_dropped is None and facts.probe is None:
        return  # The probe ended before its table could be looked at; `_gate` tells so.
    yield from _settings("Connect", facts.connect_dropped)
    if facts.connect_sees_table is False:
        yield Finding(
            "not safe",
            "Spark Connect and SQL sessions use different catalogs",
            "A Python model would write to a catalog that the gate does not check.",
            "use one Spark server for both, or give both the same catalog settings",
        )


def _numbers(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"\D*(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
