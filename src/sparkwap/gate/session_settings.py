"""The settings that a project may set in its Spark sessions.

Any other setting may redirect a write, change the meaning of a name, or remove the session from its
audit branch. `server_side_parameters` of the profile can set every setting, for all sessions.
"""

_KEYS = frozenset(
    {
        "spark.job.description",
        "spark.scheduler.pool",
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.broadcastTimeout",
        "spark.sql.caseSensitive",
        "spark.sql.constraintPropagation.enabled",
        "spark.sql.crossJoin.enabled",
        "spark.sql.iceberg.distribution-mode",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.maxPlanStringLength",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "spark.sql.storeAssignmentPolicy",
        "spark.sql.timestampType",
    }
)

_FAMILIES = tuple(
    f"spark.sql.{name}."
    for name in (
        "adaptive", "ansi", "cbo", "codegen", "csv", "decimalOperations", "execution", "files",
        "iceberg.locality", "iceberg.planning", "iceberg.vectorization", "inMemoryColumnarStorage",
        "join", "json", "legacy", "optimizer", "orc", "parquet", "pyspark", "repl", "statistics",
    )
)  # fmt: skip


def settable(key: str) -> bool:
    """Return whether a statement or Python model of a project may set a key; case-sensitive."""
    return key in _KEYS or key.startswith(_FAMILIES)
