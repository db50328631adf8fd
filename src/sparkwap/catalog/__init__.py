"""The catalog: states of tables, audit branches, clones, and commits, on SQL and REST catalogs."""

from sparkwap.catalog.model import (
    Candidate,
    Difference,
    Identifier,
    Kind,
    LedgerRows,
    Mismatch,
    OpenBranch,
    OpenTable,
    PublishReceipt,
    Read,
    TableState,
    UndonePublish,
)
from sparkwap.catalog.refusals import (
    CommitUnknown,
    PublishRefused,
    PublishTorn,
    PublishUnverified,
    RollbackRefused,
    RollbackTorn,
)

__all__ = [
    "Candidate",
    "CommitUnknown",
    "Difference",
    "Identifier",
    "Kind",
    "LedgerRows",
    "Mismatch",
    "OpenBranch",
    "OpenTable",
    "PublishReceipt",
    "PublishRefused",
    "PublishTorn",
    "PublishUnverified",
    "Read",
    "RollbackRefused",
    "RollbackTorn",
    "TableState",
    "UndonePublish",
]
