"""Stored failures of tests."""

from __future__ import annotations

from dbt.tests.adapter.store_test_failures_tests import basic
from dbt.tests.adapter.store_test_failures_tests.test_store_test_failures import (
    BaseStoreTestFailures,
    BaseStoreTestFailuresLimit,
)


class TestStoreTestFailures(BaseStoreTestFailures):
    pass


class TestStoreTestFailuresLimit(BaseStoreTestFailuresLimit):
    pass


class TestAsInteractions(basic.StoreTestFailuresAsInteractions):
    pass


class TestAsProjectLevelOff(basic.StoreTestFailuresAsProjectLevelOff):
    pass


class TestAsProjectLevelView(basic.StoreTestFailuresAsProjectLevelView):
    pass


class TestAsProjectLevelEphemeral(basic.StoreTestFailuresAsProjectLevelEphemeral):
    pass


class TestAsGeneric(basic.StoreTestFailuresAsGeneric):
    pass


class TestAsExceptions(basic.StoreTestFailuresAsExceptions):
    pass
