"""What a branch changes, in rows and columns: exact, without a join of the two states.

See ``docs/diff.md``. `comment` renders it for a pull request from anywhere, `Differ` compares over
a Spark session that one has, and `rendered` gives any of the formats.
"""

from sparkwap.core.personal import Hidden
from sparkwap.diff.comment import comment
from sparkwap.diff.differ import Differ
from sparkwap.diff.model import RowSample, RunDiff, SchemaChange, TableDiff
from sparkwap.diff.operation import rendered
from sparkwap.diff.render import markdown, page

__all__ = [
    "Differ",
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
