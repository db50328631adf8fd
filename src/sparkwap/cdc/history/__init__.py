"""From a change log to the history of each key: versions, each with its time of validity.

Pure: settings and columns in, SQL text out. What has to be asked before the next statement can be
written is asked by a function that the caller gives. See docs/history.md.
"""

from sparkwap.cdc.history.build import Build
from sparkwap.cdc.history.extend import Extension
from sparkwap.cdc.history.marks import Marks, Run, marks
from sparkwap.cdc.history.settings import History, read_settings, restated

__all__ = ["Build", "Extension", "History", "Marks", "Run", "marks", "read_settings", "restated"]
