"""The dbt package that travels with the adapter: the gate's macros and hooks."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
