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

_FAMILIES = (
    "spark.sql.adaptive.",
    "spark.sql.ansi.",
    "spark.sql.cbo.",
    "spark.sql.codegen.",
    "spark.sql.csv.",
    "spark.sql.decimalOperations.",
    "spark.sql.execution.",
    "spark.sql.files.",
    "spark.sql.iceberg.locality.",
    "spark.sql.iceberg.planning.",
    "spark.sql.iceberg.vectorization.",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.",
    "spark.sql.json.",
    "spark.sql.legacy.",
    "spark.sql.optimizer.",
    "spark.sql.orc.",
    "spark.sql.parquet.",
    "spark.sql.pyspark.",
    "spark.sql.repl.",
    "spark.sql.statistics.",
)


def settable(key: str) -> bool:
    """Return whether a statement or Python model of a project may set a key; case-sensitive."""
    return key in _KEYS or key.startswith(_FAMILIES)
