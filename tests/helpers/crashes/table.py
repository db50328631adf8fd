"""The table of `docs/crashes.md`.

``PYTHONPATH=tests python -m helpers.crashes.table`` prints it.
"""

from __future__ import annotations

from sparkwap.core.checkpoints import CHECKPOINTS

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
    lines = [
        f"| `{s.name}` | {s.done} | {sees[s.readers]} | {s.goes_on} |" for s in CHECKPOINTS.values()
    ]
    return "\n".join([HEAD, *lines])


if __name__ == "__main__":
    print(table())
