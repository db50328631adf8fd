"""Compares a branch with another state of the lake: exact rows and columns, without a join.

See ``docs/diff.md``. `differ.Differ` compares in a Spark session: `states` finds the two states,
`sources` the rows to read, and `counting` counts those that differ. `rendered` writes the result in
any format. `comment` calls dbt for this, and returns the result as Markdown.
"""

from sparkwap.core.personal import Hidden
from sparkwap.diff.comment import comment
from sparkwap.diff.model import RowSample, RunDiff, SchemaChange, TableDiff
from sparkwap.diff.operation import rendered
from sparkwap.diff.render import markdown, page

__all__ = [
    "Hidden",
    "RowSample",
    "RunDiff",
    "SchemaChange",
    "TableDiff",
    "comment",
    "markdown",
    "page",
    "rendered",
]
