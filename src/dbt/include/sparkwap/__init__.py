"""The adapter's dbt package: the gate's macros and hooks, and the macros for landing files,
histories and audits that every project can call.
"""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
