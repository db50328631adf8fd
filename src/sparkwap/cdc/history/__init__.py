"""Computes the history of each key from a change log: versions with their time of validity.

The functions are pure: they turn settings and columns into SQL text. Queries that are needed before
the next statement can be built go through a function of the caller. See docs/history.md.
"""

from sparkwap.cdc.history.build import HistoryBuild
from sparkwap.cdc.history.extend import Extension
from sparkwap.cdc.history.marks import HIGHEST, HistoryMarks, Run, marks
from sparkwap.cdc.history.settings import HistorySettings, read_settings, restated

__all__ = [
    "HIGHEST",
    "Extension",
    "HistoryBuild",
    "HistoryMarks",
    "HistorySettings",
    "Run",
    "marks",
    "read_settings",
    "restated",
]
