"""The dbt adapter of sparkwap, which adds a gate around every build to dbt-spark.

dbt derives the prefixes of classes and macros from the adapter's type, ``sparkwap``.
"""

import gc

# dbt keeps most of what it imports and parses, so the collector looks for garbage in vain: a tenth
# of the time of a parse. mypy does the same. It comes first because the imports below count, too.
if 0 < gc.get_threshold()[0] < 100_000:
    gc.set_threshold(100_000)
    gc.freeze()

from dbt.adapters.base.plugin import AdapterPlugin

from dbt.adapters.sparkwap.connections import SparkWapConnectionManager  # noqa: F401
from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from dbt.adapters.sparkwap.impl import SparkWapAdapter
from dbt.include import sparkwap

Plugin = AdapterPlugin(
    adapter=SparkWapAdapter,  # type: ignore[arg-type]
    credentials=SparkWapCredentials,
    include_path=sparkwap.PACKAGE_PATH,
    dependencies=["spark"],
)
