"""The catalog: states of tables, audit branches, clones, and publishing in one transaction.

`Lake` is the entrance. The catalog is Iceberg's JDBC catalog (SQLite or PostgreSQL), which Spark
and PyIceberg share.
"""

from sparkwap.catalog.lake import Lake
from sparkwap.catalog.model import (
    BranchItem,
    ColumnState,
    CommitUnknown,
    Discarded,
    How,
    Identifier,
    Item,
    Kind,
    LedgerRows,
    Mismatch,
    OpenBranch,
    OpenedBranch,
    OpenTable,
    PublishedEntry,
    PublishReceipt,
    PublishRefused,
    PublishTorn,
    PublishUnverified,
    RefState,
    RollbackReceipt,
    RollbackRefused,
    SideItem,
    SideObject,
    TableState,
)

__all__ = [
    "BranchItem",
    "ColumnState",
    "CommitUnknown",
    "Discarded",
    "How",
    "Identifier",
    "Item",
    "Kind",
    "Lake",
    "LedgerRows",
    "Mismatch",
    "OpenBranch",
    "OpenTable",
    "OpenedBranch",
    "PublishReceipt",
    "PublishRefused",
    "PublishTorn",
    "PublishUnverified",
    "PublishedEntry",
    "RefState",
    "RollbackReceipt",
    "RollbackRefused",
    "SideItem",
    "SideObject",
    "TableState",
]
