"""Snapshots: strategies, deletions, column names, keys."""

from __future__ import annotations

from dbt.tests.adapter.simple_snapshot.new_record_check_mode import (
    BaseSnapshotNewRecordCheckMode,
)
from dbt.tests.adapter.simple_snapshot.new_record_dbt_valid_to_current import (
    BaseSnapshotNewRecordDbtValidToCurrent,
)
from dbt.tests.adapter.simple_snapshot.new_record_timestamp_mode import (
    BaseSnapshotNewRecordTimestampMode,
)
from dbt.tests.adapter.simple_snapshot.test_ephemeral_snapshot_hard_deletes import (
    BaseSnapshotEphemeralHardDeletes,
    BaseSnapshotNewColumnSpecificCheckCols,
    BaseSnapshotNewColumnTimestampStrategy,
    BaseSnapshotNewColumnWithDeletes,
)
from dbt.tests.adapter.simple_snapshot.test_snapshot import (
    BaseSimpleSnapshot,
    BaseSnapshotCheck,
)
from dbt.tests.adapter.simple_snapshot.test_various_configs import (
    BaseSnapshotColumnNames,
    BaseSnapshotColumnNamesFromDbtProject,
    BaseSnapshotDbtValidToCurrent,
    BaseSnapshotInvalidColumnNames,
    BaseSnapshotMultiUniqueKey,
)


class TestSimpleSnapshot(BaseSimpleSnapshot):
    pass


class TestSnapshotCheck(BaseSnapshotCheck):
    pass


class TestNewRecordTimestampMode(BaseSnapshotNewRecordTimestampMode):
    pass


class TestNewRecordCheckMode(BaseSnapshotNewRecordCheckMode):
    pass


class TestNewRecordDbtValidToCurrent(BaseSnapshotNewRecordDbtValidToCurrent):
    pass


class TestEphemeralHardDeletes(BaseSnapshotEphemeralHardDeletes):
    pass


class TestNewColumnTimestampStrategy(BaseSnapshotNewColumnTimestampStrategy):
    pass


class TestNewColumnSpecificCheckCols(BaseSnapshotNewColumnSpecificCheckCols):
    pass


class TestNewColumnWithDeletes(BaseSnapshotNewColumnWithDeletes):
    pass


class TestColumnNames(BaseSnapshotColumnNames):
    pass


class TestColumnNamesFromDbtProject(BaseSnapshotColumnNamesFromDbtProject):
    pass


class TestInvalidColumnNames(BaseSnapshotInvalidColumnNames):
    pass


class TestDbtValidToCurrent(BaseSnapshotDbtValidToCurrent):
    pass


class TestMultiUniqueKey(BaseSnapshotMultiUniqueKey):
    pass
