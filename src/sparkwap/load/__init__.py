"""``sparkwap load``: a Parquet file behind the gate, without Spark or a JVM.

PyIceberg appends the file to an audit branch, the table's audits look at the branch, and the gate
publishes it, or leaves it on the branch. It is a run like any other: with a lease, a candidate, a
verdict, rows in the ledger, and a publish that can be rolled back.
"""

from sparkwap.load.audits import Audit, Audits, from_arguments, from_manifest, from_yaml
from sparkwap.load.errors import LoadError
from sparkwap.load.files import DEFAULT_LIMIT, Drop, open_drop
from sparkwap.load.loading import Loaded, Request, load

__all__ = [
    "DEFAULT_LIMIT",
    "Audit",
    "Audits",
    "Drop",
    "LoadError",
    "Loaded",
    "Request",
    "from_arguments",
    "from_manifest",
    "from_yaml",
    "load",
    "open_drop",
]
