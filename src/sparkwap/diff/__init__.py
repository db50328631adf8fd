"""Compares a branch with another state of the lake: exact rows and columns, without a join.

See ``docs/diff.md``. `differ.Differ` compares in a Spark session: `states` finds the two states,
`sources` the rows to read, and `counting` counts those that differ. `rendered` writes the result in
any format. `comment` calls dbt for this, and returns the result as Markdown.
"""

from sparkwap.diff.comment import comment
from sparkwap.diff.operation import rendered

__all__ = ["comment", "rendered"]
