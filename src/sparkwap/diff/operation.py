"""The run-operation ``wap_diff``: its arguments and its output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from sparkwap.core.arguments import Arguments, argument
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.diff import render
from sparkwap.diff.model import RunDiff
from sparkwap.runs.operations.found import DiffResult, TableDifference

Format = Literal["text", "json", "markdown", "html"]

SAMPLE = 10
MOST_SAMPLES = 1000


class NotCompared(SparkwapError):
    """Some tables could not be compared; the message has the result of the others."""


@dataclass(frozen=True, kw_only=True)
class Diff(Arguments):
    """Compare a branch with main: columns, added, removed and changed rows, samples."""

    name: ClassVar = "wap_diff"
    only_reads: ClassVar = True
    harmless: ClassVar = "Nothing was compared"
    branch: str | None = argument(
        "the audit branch, or a tag, whose tables are compared; wap_branch if left out",
        default=None,
    )
    against: str = argument(
        "main (the default), another branch or tag, or base: the state of the tables when the "
        "branch was opened",
        default="main",
    )
    tables: tuple[str, ...] = argument(
        "names of tables, with or without schema; all tables of the branch if left out", default=()
    )
    format: Format = argument("text (the default), json, markdown or html", default="text")
    file: Path | None = argument(
        "a file to write to; the result is printed if left out", default=None
    )
    sample: int = argument(
        f"sample rows of each kind to show of a table, 0 for none; {SAMPLE} if left out",
        default=SAMPLE,
        most=MOST_SAMPLES,
    )
    limit: int = argument(
        f"greatest number of characters of markdown; {render.LIMIT} if left out",
        default=render.LIMIT,
        least=2000,
        most=10_000_000,
    )


def result(diff: RunDiff) -> DiffResult:
    """Return the result for programs, without values of rows."""
    return DiffResult(
        diff.branch,
        diff.against,
        diff.at,
        tuple(
            TableDifference(
                table=one.name,
                change=one.change,
                added=one.added,
                removed=one.removed,
                changed=one.changed,
                columns=one.columns,
                columns_added=tuple(column.name for column in one.schema.added),
                columns_removed=tuple(column.name for column in one.schema.removed),
                columns_retyped=tuple(column.name for column in one.schema.retyped),
                columns_renamed={column.before: column.after for column in one.schema.renamed},
                notes=one.notes,
            )
            for one in diff.tables
        ),
    )


def rendered(diff: RunDiff, form: Format, limit: int = render.LIMIT) -> str:
    """Return the result in one of the formats."""
    if form == "json":
        return json.dumps(diff.as_dict(), indent=2, ensure_ascii=False) + "\n"
    if form == "markdown":
        return render.markdown(diff, limit)
    if form == "html":
        return render.page(diff)
    return "\n".join(render.text(diff)) + "\n"


def deliver(diff: RunDiff, request: Diff) -> list[str]:
    """Write the result to its file; returns the lines to print.

    Raises:
        NotCompared: Some tables could not be compared; the result is written nevertheless.
    """
    content = rendered(diff, request.format, request.limit)
    lines = content.splitlines()
    if request.file is not None:
        try:
            request.file.parent.mkdir(parents=True, exist_ok=True)
            request.file.write_text(content, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{request.file} cannot be written: {error.strerror or error}. Nothing was "
                "changed in the lake. Choose another file."
            ) from error
        count = len(diff.differing)
        lines = [
            f"{count} of {len(diff.tables)} tables of {diff.branch} differ from {diff.against}: "
            f"{request.file}"
        ]
    if diff.failed:
        names = ", ".join(table.name for table in diff.failed)
        lines.append(
            f"Not compared: {names}. Nothing was changed. Fix the reasons in the notes of "
            "these tables, then run the same command again."
        )
        raise NotCompared("\n".join(lines))
    return lines
