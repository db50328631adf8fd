"""The dbt adapter of sparkwap, which adds a gate around every build to dbt-spark.

dbt derives the prefixes of classes and macros from the adapter's type, ``sparkwap``.
"""

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
