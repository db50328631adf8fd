"""The run-operation ``wap_diff``: its arguments, and where its result goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.diff import render
from sparkwap.diff.model import RunDiff

Format = Literal["text", "json", "markdown", "html"]

SAMPLE = 10
MOST_SAMPLES = 1000
_LEAST_LIMIT = 2000

LEGAL: Mapping[str, str] = {
    "branch": "the audit branch, or a tag, whose tables are compared; wap_branch if left out",
    "against": "main (the default), another branch or tag, or base: what the tables were when the "
    "branch was opened",
    "tables": "names of tables, with or without schema, as a list; all of the branch if left out",
    "format": "text (the default), json, markdown or html",
    "output": "a file to write to; printed if left out",
    "sample": f"rows of each kind to show of a table, 0 for none; {SAMPLE} if left out",
    "limit": f"characters of markdown at most; {render.LIMIT} if left out",
}
"""The arguments of ``wap_diff``, with their legal values in words."""


class NotCompared(SparkwapError):
    """Some tables could not be compared; the message is the result with the others."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare, and what becomes of the result.

    Attributes:
        branch: The new state.
        against: The old one.
        tables: Names of tables; empty for all.
        format: What is written.
        output: The file; None to print.
        sample: Rows of each kind.
        limit: Characters of Markdown at most.
    """

    branch: str
    against: str = "main"
    tables: tuple[str, ...] = ()
    format: Format = "text"
    output: Path | None = None
    sample: int = SAMPLE
    limit: int = render.LIMIT

    @classmethod
    def of(cls, arguments: Mapping[str, Any], branch: str | None = None) -> Request:
        """The request that some arguments make.

        Args:
            arguments: As given; None is not given.
            branch: The branch if none is given.

        Raises:
            ConfigError: Arguments are unknown, lack or have illegal values.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        unknown = sorted(set(given) - set(LEGAL))
        if unknown:
            raise _refused(f"unknown argument: {', '.join(unknown)}")
        chosen = given.get("branch", branch)
        if not isinstance(chosen, str) or not chosen:
            raise _refused("branch is missing")
        form = given.get("format", "text")
        if form not in get_args(Format):
            raise _refused(f"format is {form!r}")
        tables = given.get("tables", ())
        output = given.get("output")
        return cls(
            chosen,
            str(given.get("against", "main")),
            tuple(map(str, tables if isinstance(tables, list | tuple) else [tables])),
            cast(Format, form),
            None if output is None else Path(str(output)),
            _number(given, "sample", SAMPLE, 0, MOST_SAMPLES),
            _number(given, "limit", render.LIMIT, _LEAST_LIMIT, 10_000_000),
        )


def rendered(diff: RunDiff, form: Format, limit: int = render.LIMIT) -> str:
    """The result in one of the formats."""
    if form == "json":
        return diff.to_json() + "\n"
    if form == "markdown":
        return render.markdown(diff, limit)
    if form == "html":
        return render.page(diff)
    return "\n".join(render.text(diff)) + "\n"


def deliver(diff: RunDiff, request: Request) -> list[str]:
    """Write the result to its file; returns the lines to print.

    Raises:
        NotCompared: Some tables could not be compared; what was asked for is written all the same.
        ConfigError: The file cannot be written.
    """
    content = rendered(diff, request.format, request.limit)
    lines = content.splitlines()
    if request.output is not None:
        try:
            request.output.parent.mkdir(parents=True, exist_ok=True)
            request.output.write_text(content, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{request.output} cannot be written: {error.strerror or error}. Nothing was "
                "changed in the lake. Choose another file (output)."
            ) from error
        count = len(diff.differing)
        lines = [
            f"{count} of {len(diff.tables)} tables of {diff.branch} differ from {diff.against}: "
            f"{request.output}"
        ]
    if diff.failed:
        names = ", ".join(one.name for one in diff.failed)
        raise NotCompared(
            "\n".join(
                [
                    *lines,
                    f"Not compared: {names}. Nothing was changed. The reasons stand with them; "
                    "then run the same command again.",
                ]
            )
        )
    return lines


def _number(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not str(value).isdecimal() or not least <= int(value) <= most:
        raise _refused(f"{name} is {value!r}; legal: {least} to {most}")
    return int(value)


def _refused(problem: str) -> ConfigError:
    legal = (f"  {name}: {meaning}" for name, meaning in LEGAL.items())
    head = f"wap_diff: {problem}. Nothing was compared. Arguments (--args '{{key: value}}'):"
    return ConfigError("\n".join([head, *legal]))
