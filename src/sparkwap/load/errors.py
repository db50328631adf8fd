"""What is wrong with a file, its table or its audits."""

from sparkwap.errors import SparkwapError


class LoadError(SparkwapError):
    """A file cannot be loaded; nothing was written."""
