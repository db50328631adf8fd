"""The dbt package that travels with the adapter: the gate's macros and hooks, and those of sources,
histories and audits that any project may call.
"""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
