"""The tables of `docs/crashes.md`: ``PYTHONPATH=tests python -m crashes.table`` prints them."""

from __future__ import annotations

from crashes import cells
from sparkwap.steps import STEPS

HEAD = """| step | what has happened | readers of `main` see | goes on |
|---|---|---|---|"""


def table() -> str:
    """All steps."""
    sees = {
        "before": "what was before",
        "between": "of each table the one or the other",
        "gap": "the same, and one table is away",
        "after": "all of it",
    }
    lines = [f"| `{s.name}` | {s.done} | {sees[s.readers]} | {s.goes_on} |" for s in STEPS.values()]
    return "\n".join([HEAD, *lines])


def counts() -> str:
    """How many cells there are."""
    rows = {
        "without Spark (`tests/unit/test_crashes.py`), in CI": cells.WITHOUT_SPARK,
        "the same with every scenario and every time a step is reached (`SOAK=1`)": (
            "more than 1,100"
        ),
        "full disk: sizes that no file may exceed; lost database: parts of a transaction": (
            cells.WITHOUT_ROOM
        ),
        "the steps of a series, on a REST server: a publish, a replaced table, a rollback, one "
        "that is undone, one that `dbt retry` finds": cells.IN_SERIES,
        "with dbt and Spark (`tests/functional/crashes`), in CI": cells.WITH_SPARK,
        "the same with all steps of a build (`SOAK=1`)": cells.WITH_SPARK_SOAK,
    }
    return "\n".join(["| | cells |\n|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])


if __name__ == "__main__":
    print(counts(), table(), sep="\n\n")
