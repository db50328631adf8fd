"""Generates the table of docs/metrics.md from the definitions of the metrics.

A unit test fails if the table is outdated; `python scripts/metrics_table.py` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from sparkwap.metrics.exposition import METRICS

PAGE = Path(__file__).resolve().parents[1] / "docs/metrics.md"
BEGIN, END = "<!-- metrics: scripts/metrics_table.py -->\n", "<!-- end of metrics -->\n"


def table() -> str:
    """Return the table of all metrics."""
    rows = [
        f"| `{one.name}` | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for one in METRICS
    ]
    return "\n".join(["| metric | labels | meaning |", "|---|---|---|", *rows]) + "\n"


def page(text: str) -> str:
    """Return the page with a new table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
