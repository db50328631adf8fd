"""From a change log to the history of each key: versions, each with its time of validity.

Pure: settings and columns in, SQL text out. What has to be asked before the next statement can be
written is asked by a function that the caller gives. See docs/history.md.
"""

from sparkwap.cdc.history.build import HistoryBuild
from sparkwap.cdc.history.extend import Extension
from sparkwap.cdc.history.marks import HistoryMarks, Run, marks
from sparkwap.cdc.history.settings import HistorySettings, read_settings, restated

__all__ = [
    "Extension",
    "HistoryBuild",
    "HistoryMarks",
    "HistorySettings",
    "Run",
    "marks",
    "read_settings",
    "restated",
]
