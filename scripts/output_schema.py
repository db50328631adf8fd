"""Writes the schema of ``--output json``, and the tables of docs/output.md.

A unit test fails if they are outdated; `python scripts/output_schema.py` writes them again.
"""

from __future__ import annotations

import json
from pathlib import Path

from sparkwap.cli.results import RESULTS, schema
from sparkwap.core.command_end import SCHEMA_VERSION

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, SCHEMA = DOCS / "output.md", DOCS / f"schemas/output-{SCHEMA_VERSION}.json"
BEGIN, END = "<!-- results: scripts/output_schema.py -->\n", "<!-- end of results -->\n"


def text() -> str:
    """Return the schema as a file."""
    return json.dumps(schema(), indent=1) + "\n"


def page(before: str) -> str:
    """Return the page with a new table."""
    commands: dict[str, list[str]] = {}
    for command, result in RESULTS.items():
        commands.setdefault(result.__name__, []).append(f"`{command}`")
    rows = [f"| {', '.join(names)} | `{result}` |" for result, names in commands.items()]
    table = "\n".join(["| commands | result |", "|---|---|", *rows]) + "\n"
    head, rest = before.split(BEGIN)
    return f"{head}{BEGIN}{table}{END}{rest.split(END)[1]}"


def main() -> None:
    SCHEMA.parent.mkdir(exist_ok=True)
    SCHEMA.write_text(text())
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
