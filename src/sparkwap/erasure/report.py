"""The texts of an erasure: plan, next command, report. No text contains a key or a value."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import Identifier, TableState
from sparkwap.catalog import metadata as md
from sparkwap.core.text import counted
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.progress import ErasureProgress
from sparkwap.erasure.proof import Proof
from sparkwap.erasure.request import Erase
from sparkwap.maintenance.expiry import Expired
from sparkwap.runs.operations.found import ErasureResult, SubjectRows

if TYPE_CHECKING:
    from sparkwap.erasure.finder import Found

ERASED = "(erased)"
_SHOWN = 20


def plan(
    request: Erase, found: Found, states: Mapping[Identifier, TableState], conditions: Conditions
) -> list[str]:
    """Return the plan of the operation, with numbers of rows and files."""
    lines = [f"{request.name} of subject {request.subject}:"]
    whole = {rewrite.identifier for rewrite in found.rewrites if rewrite.whole}
    for place in found.places:
        rows, going, changing = found.counts.get(place.identifier, (0, 0, 0))
        if place.identifier in found.counts:
            text = f"{going} of {rows} rows to delete, {changing} to change"
            if place.identifier in whole:
                text += "; the whole table is rewritten"
        else:
            text = "no row"
        lines.append(f"  {place.name}   {text}")
    compared = [
        f"{place.name}.{column.name} ({column.type})"
        for place in found.places
        for column in states[place.identifier].columns
        if column.name in place.keys
    ]
    if compared:
        lines.append(f"The keys are compared with {', '.join(compared)}.")
    if found.skipped:
        lines.append(
            f"{found.skipped} of the keys in {request.keys_from} cannot be a value of any of these "
            "columns, such as a text for numbers. They are left out and stay in that table."
        )
    holding = found.proof.holding
    lines.append(
        f"{len(holding)} of {len(found.proof.files)} files of the lake hold the subject "
        f"({_kinds(holding)})."
    )
    if found.orphans:
        lines.append(
            f"{counted(len(found.orphans), 'file')} of these, to which nothing refers, will be "
            f"deleted with all that they have: {conditions.folders(found.orphans, found.places)}."
        )
    if found.shared:
        lines.append(
            f"{sum(found.shared.values())} of its personal values also belong to others ("
            + ", ".join(f"{name} {count}" for name, count in found.shared.items())
            + "), so the proof does not search for them."
        )
    if found.search.names:
        lines.append(
            f"{len(found.search.names)} of its keys and values are also names of tables, columns "
            "or the project, so the proof does not search for them where such names stand "
            "(schemas, headers, paths, ids of the ledger)."
        )
    lines += of_others(found.others)
    lines += [
        f"Which rows of {'.'.join(name)} stay is not known yet (it has equality deletes, or "
        "files that cannot be read), so only the proof searches them."
        for name in sorted(found.unseen)
    ]
    for identifier in sorted(found.touched() & set(states)):
        state = states[identifier]
        gone = sorted(name for name in state.refs if name != md.MAIN)
        lines.append(
            f"  {'.'.join(identifier)} will have no earlier time travel and no earlier rollbacks"
            + (f", with {', '.join(gone)}" if gone else "")
        )
        if identifier in found.histories:
            lines.append(
                "    scd2_from_changes makes a history of its snapshots: former versions of ALL "
                "keys are lost; to keep them, first write that history to a table"
            )
    return lines


def of_others(tables: Iterable[Identifier]) -> list[str]:
    """Return what to do about tables of other catalogs that refer to files of the subject."""
    return [
        f"{'.'.join(table)} of another catalog in this database refers to files that hold the "
        "subject. They stay, and nothing is proven, until it is erased or dropped there, too."
        for table in sorted(tables)
    ]


def next_steps(request: Erase, blockers: Sequence[str]) -> list[str]:
    """Return what to do first, or how to confirm the operation."""
    if blockers:
        return ["Nothing was changed. Do this first:", *(f"  {blocker}" for blocker in blockers)]
    confirm = "confirm: true (dbt) or --confirm (sparkwap)"
    return [f"Nothing was changed. To carry it out: the same {request.name} with {confirm}"]


def plan_result(request: Erase, found: Found, begun: Mapping[str, Any]) -> ErasureResult:
    """Return the plan for programs.

    Args:
        begun: The numbers before the first change of an earlier call that has not ended, if any.
    """
    tables = (begun or before(found))["tables"]
    return ErasureResult(
        subject=request.subject,
        state="begun" if begun else "blocked" if found.blockers else "planned",
        tables=tuple(
            SubjectRows(name, one["rows"], one["erased"], one["changed"])
            for name, one in tables.items()
        ),
        files=len(found.proof.files),
        holding=len(found.proof.holding),
        blockers=tuple(found.blockers),
    )


def call_again(request: Erase) -> str:
    """Return the next step after an interruption."""
    return (
        f"{request.name} is not complete. Tables that it has published stay published; the rows of "
        "all other tables are as they were. Run the same command again, with the same arguments: "
        "it continues from there."
    )


def before(found: Found) -> dict[str, Any]:
    """Return the numbers before the operation, for the report."""
    return {
        "files": len(found.proof.files),
        "files_holding": len(found.proof.holding),
        "tables": {
            ".".join(name): {"rows": rows, "erased": going, "changed": changing}
            for name, (rows, going, changing) in sorted(found.counts.items())
        },
    }


def document(
    request: Erase,
    found: Found,
    journal: ErasureProgress,
    proof: Proof,
    *,
    run_id: str,
    forgotten: Sequence[Expired],
    early: Sequence[str],
    of_server: Sequence[str],
    not_reached: Sequence[str],
) -> dict[str, Any]:
    """Return the report, from the results of the operation.

    Args:
        early: The living runs that began before the erasure, in words; they may have read its rows.
    """
    conditions = Conditions(journal.salt)
    keys = sorted(map(conditions.digest, journal.keys))
    return {
        "operation": request.name,
        "run_id": run_id,
        "subject": request.subject,
        "keys": {"count": len(keys), "sha256_of_salt_and_key": keys, "salt": journal.salt},
        "columns": sorted(request.new_values),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "clean": proof.clean and not early,
        "before": journal.report,
        "expired": [
            {
                "table": ".".join(expired.identifier),
                "snapshots": expired.snapshots,
                "refs": list(expired.refs),
            }
            for expired in forgotten
        ],
        "values_shared_with_others": sum(found.shared.values()),
        "values_that_are_names": len(found.search.names),
        "not_looked_at": sorted(request.ignored),
        "outside_the_lake": journal.outside,
        "runs_from_before": list(early),
        "of_the_running_server": list(of_server),
        "not_reached": list(not_reached),
        "files": [
            {
                "path": conditions.without_values(file.path, found.places),
                "format": file.format,
                "bytes": file.size,
                "table": ".".join(file.table) if file.table else None,
                "result": list(file.found) or "does not hold the subject",
            }
            for file in proof.files
        ],
    }


def not_reached(*, object_store: bool, catalog_server: bool, spark_server: bool) -> list[str]:
    """Return the data outside the files of the lake that may hold the subject.

    Args:
        object_store: The warehouse is in an object store.
        catalog_server: The catalog is a server of its own (REST, Glue, Hive).
        spark_server: Spark runs on a server that does not belong to the lake.
    """
    found = {
        "what the object store keeps of deleted objects (old versions, replicas, incomplete "
        "uploads)": object_store,
        "the catalog server's own data (database, backups, logs)": catalog_server,
        "the log and scratch files of the Spark server, whose error messages may contain a "
        "value": spark_server,
    }
    return [name for name, exists in found.items() if exists]


def write(folder: Path, name: str, report: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write the report as JSON and as text; returns the two files."""
    folder.mkdir(parents=True, exist_ok=True)
    data, readable = folder / f"proof_{name}.json", folder / f"proof_{name}.txt"
    data.write_text(json.dumps(report, indent=2))
    readable.write_text("\n".join(_readable(report)) + "\n")
    return data, readable


def message(request: Erase, report: Mapping[str, Any], written: Path) -> str:
    """Return the report in one line, for the ledger."""
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    holding = sum(type(file["result"]) is list for file in report["files"])
    together = hashlib.sha256("".join(report["keys"]["sha256_of_salt_and_key"]).encode())
    return (
        f"{request.subject}: {report['keys']['count']} keys (hash {together.hexdigest()[:16]}), "
        f"{len(report['files'])} files read, {holding} hold the subject; report sha256 {digest}"
    )


def result(report: Mapping[str, Any], written: Sequence[Path]) -> list[str]:
    """Return the last lines to print: the result."""
    files = report["files"]
    holding = [file for file in files if type(file["result"]) is list]
    lines: list[str] = []
    for expired in report["expired"]:
        refs = f", {', '.join(expired['refs'])}" if expired["refs"] else ""
        lines.append(f"Expired: {expired['table']}   {expired['snapshots']} snapshots{refs}")
    if holding:
        lines.append(f"NOT PROVEN: {len(holding)} of {len(files)} files hold the subject:")
        lines += [f"  {file['path']}: {'; '.join(file['result'])}" for file in holding[:_SHOWN]]
    elif report["runs_from_before"]:
        lines.append(
            f"NOT PROVEN: {len(files)} files read, none holds the subject, but a run is at work "
            "that began before the erasure and may publish what it has read."
        )
    else:
        lines.append(f"Proven: {len(files)} files read, none holds the subject.")
    if report["outside_the_lake"]:
        lines.append(
            "These landing files hold the subject: edit or delete them; builds take them as read, "
            "whatever they have. What is like topic/id/partition/offsets are messages of a Kafka "
            "topic, which its retention or compaction removes:"
        )
        lines += [f"  {path}" for path in report["outside_the_lake"][:_SHOWN]]
        if len(report["outside_the_lake"]) > _SHOWN:
            lines.append(f"  and {len(report['outside_the_lake']) - _SHOWN} more, in the report")
        lines.append(
            "Not searched: copies of landing files, which builds have skipped, and files that no "
            "build has read. Search them yourself."
        )
    if report["of_the_running_server"]:
        lines.append(
            "These log and scratch files of the running Spark server hold the subject; delete them "
            "after `sparkwap server stop`:"
        )
        lines += [f"  {path}" for path in report["of_the_running_server"][:_SHOWN]]
    lines += [f"Not searched: {data}. Ask its operator." for data in report["not_reached"]]
    lines.append(
        "Not searched: dbt's folders target/ and logs/, which have the arguments of this command. "
        "If you gave the keys by hand, delete them."
    )
    return [*lines, f"Report: {written[0]}"]


def _readable(report: Mapping[str, Any]) -> Iterable[str]:
    yield f"{report['operation']} of subject {report['subject']}, {report['keys']['count']} keys"
    yield f"run {report['run_id']}, {report['at']}"
    yield f"clean: {'yes' if report['clean'] else 'NO'}"
    for name, counts in report["before"].get("tables", {}).items():
        yield f"  {name}: {counts['erased']} rows erased, {counts['changed']} changed"
    yield ""
    for file in report["files"]:
        found = (
            file["result"] if type(file["result"]) is str else "HOLDS: " + "; ".join(file["result"])
        )
        yield f"{file['bytes']:>12}  {file['format']:<10}  {found}  {file['path']}"


def _kinds(files: Sequence[Any]) -> str:
    counts = Counter(file.format for file in files)
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "none"
