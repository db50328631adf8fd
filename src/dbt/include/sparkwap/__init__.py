"""The dbt package that travels with the adapter: the gate's macros and hooks."""

import os

PACKAGE_PATH = os.path.dirname(__file__)
