"""The dbt adapter of sparkwap: dbt-spark's, with a gate around every build.

The type is ``sparkwap``; dbt derives the class and macro prefixes from it.
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
