"""The table of `docs/crashes.md`.

``PYTHONPATH=tests python -m helpers.crashes.table`` prints it.
"""

from __future__ import annotations

from sparkwap.core.checkpoints import CHECKPOINTS

HEAD = """| step | state | readers of `main` see | next command |
|---|---|---|---|"""


def table() -> str:
    """All steps."""
    sees = {
        "before": "the state before",
        "between": "each table in its old or new state",
        "gap": "the same, but one table is missing",
        "after": "the whole change",
    }
    lines = [
        f"| `{s.name}` | {s.done} | {sees[s.readers]} | {s.next_command} |"
        for s in CHECKPOINTS.values()
    ]
    return "\n".join([HEAD, *lines])


if __name__ == "__main__":
    print(table())
