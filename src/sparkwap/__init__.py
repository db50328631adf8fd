"""sparkwap: a gate around every dbt build on Spark and Apache Iceberg.

This package holds decisions and services and imports nothing of dbt; the dbt adapter lives in
``dbt.adapters.sparkwap``.
"""

__version__ = "0.1.0"
