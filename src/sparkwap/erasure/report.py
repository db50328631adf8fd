"""The texts of an erasure: plan, next command, report. None contains a key or a value."""

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
from sparkwap.erasure.proof import Proof
from sparkwap.erasure.request import Erase
from sparkwap.maintenance.expiry import Expired

if TYPE_CHECKING:
    from sparkwap.erasure.finder import Found

ERASED = "(erased)"
_SHOWN = 20


def plan(request: Erase, found: Found, states: Mapping[Identifier, TableState]) -> list[str]:
    """What the operation does, with numbers."""
    verb = "go" if request.erases else "are taken for wrong"
    lines = [f"{request.name} of subject {request.subject}:"]
    for place in found.places:
        rows, going, changing = found.counts.get(place.identifier, (0, 0, 0))
        if place.identifier in found.counts:
            what = f"{going} of {rows} rows {verb}, {changing} change"
        else:
            what = "no row"
        lines.append(f"  {place.name}   {what}")
    holding = found.proof.holding
    lines.append(
        f"{len(holding)} of {len(found.proof.files)} files of the lake hold the subject "
        f"({_kinds(holding)})."
    )
    if found.shared:
        lines.append(
            f"{found.shared} of its personal values others have too; no file can be told by them."
        )
    lost = found.tables_with_files() | {rewrite.identifier for rewrite in found.rewrites}
    for identifier in sorted(lost & set(states)):
        state = states[identifier]
        gone = sorted(name for name in state.refs if name != md.MAIN)
        lines.append(
            f"  {'.'.join(identifier)} loses its time travel and rollbacks before this"
            + (f", with {', '.join(gone)}" if gone else "")
        )
    return lines


def ways_on(request: Erase, blockers: Sequence[str]) -> list[str]:
    """What to do before, or how to do it."""
    if blockers:
        return ["Nothing was changed. This is in the way:", *(f"  {one}" for one in blockers)]
    return [f"Nothing was changed. To do it: the same {request.name} with confirm: true"]


def go_on(request: Erase) -> str:
    """How to go on after an interruption."""
    return (
        f"The {request.name} is not done: what is published stays published, what is not is "
        "as it was. Call it again with the same arguments; it goes on from there."
    )


def before(found: Found) -> dict[str, Any]:
    """What was there before, for the report."""
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
    proof: Proof,
    *,
    run_id: str,
    keys: Sequence[str],
    salt: str,
    before: Mapping[str, Any],
    forgotten: Sequence[Expired],
    outside: Sequence[str],
    of_server: Sequence[str],
    shared: int,
    not_reached: Sequence[str] = (),
) -> dict[str, Any]:
    """The report; what it takes is what the operation has found out."""
    return {
        "operation": request.name,
        "run_id": run_id,
        "subject": request.subject,
        "keys": {"count": len(keys), "sha256_of_salt_and_key": list(keys), "salt": salt},
        "columns": sorted(request.new_values),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "clean": proof.clean,
        "before": dict(before),
        "expired": [
            {
                "table": ".".join(one.identifier),
                "snapshots": one.snapshots,
                "refs": list(one.refs),
            }
            for one in forgotten
        ],
        "values_shared_with_others": shared,
        "not_looked_at": sorted(request.ignored),
        "outside_the_lake": list(outside),
        "of_the_running_server": list(of_server),
        "not_reached": list(not_reached),
        "files": [
            {
                "path": file.path,
                "format": file.format,
                "bytes": file.size,
                "table": ".".join(file.table) if file.table else None,
                "result": list(file.found) or "does not hold the subject",
            }
            for file in proof.files
        ],
    }


def not_reached(*, catalog_server: bool, spark_server: bool) -> list[str]:
    """What may hold the subject, and is kept by servers that are not the lake's own.

    Args:
        catalog_server: A server has the catalog in its own keeping.
        spark_server: Spark runs elsewhere.
    """
    found = {
        "what the REST catalog's server keeps besides the files of the warehouse (its database, "
        "backups, logs)": catalog_server,
        "the log and scratch files of the Spark server, where an error message may have a value in "
        "it": spark_server,
    }
    return [what for what, there in found.items() if there]


def write(folder: Path, name: str, report: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write the report, as JSON and as text."""
    folder.mkdir(parents=True, exist_ok=True)
    data, readable = folder / f"proof_{name}.json", folder / f"proof_{name}.txt"
    data.write_text(json.dumps(report, indent=2))
    readable.write_text("\n".join(_readable(report)) + "\n")
    return data, readable


def message(request: Erase, report: Mapping[str, Any], written: Path) -> str:
    """The report in one line, for the ledger."""
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    holding = sum(type(file["result"]) is list for file in report["files"])
    together = hashlib.sha256("".join(report["keys"]["sha256_of_salt_and_key"]).encode())
    return (
        f"{request.subject}: {report['keys']['count']} keys (hash {together.hexdigest()[:16]}), "
        f"{len(report['files'])} files read, {holding} hold the subject; report sha256 {digest}"
    )


def result(report: Mapping[str, Any], written: Sequence[Path]) -> list[str]:
    """The end of what is printed."""
    files = report["files"]
    holding = [file for file in files if type(file["result"]) is list]
    lines: list[str] = []
    for one in report["expired"]:
        refs = f", {', '.join(one['refs'])}" if one["refs"] else ""
        lines.append(f"Forgotten: {one['table']}   {one['snapshots']} snapshots{refs}")
    if holding:
        lines.append(f"NOT PROVEN: {len(holding)} of {len(files)} files hold the subject:")
        lines += [f"  {file['path']}: {'; '.join(file['result'])}" for file in holding[:_SHOWN]]
    else:
        lines.append(f"Proven: {len(files)} files read, none holds the subject.")
    if report["outside_the_lake"]:
        lines.append("Landing files that hold the subject, to be edited or deleted where they are:")
        lines += [f"  {path}" for path in report["outside_the_lake"][:_SHOWN]]
        if len(report["outside_the_lake"]) > _SHOWN:
            lines.append(f"  and {len(report['outside_the_lake']) - _SHOWN} more, in the report")
    if report["of_the_running_server"]:
        lines.append(
            "Log and scratch files of the running Spark server that hold the subject, to be "
            "deleted after `sparkwap server stop`:"
        )
        lines += [f"  {path}" for path in report["of_the_running_server"][:_SHOWN]]
    lines += [f"Not looked at: {one}. Its operator knows." for one in report["not_reached"]]
    lines.append(
        "Not of the lake, and not looked at: dbt's own target/ and logs/, which have the arguments "
        "of this command. Delete them where keys were given by hand."
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
