"""Stored failures of tests."""

from __future__ import annotations

from typing import ClassVar

from dbt.tests.adapter.store_test_failures_tests import basic
from dbt.tests.adapter.store_test_failures_tests.test_store_test_failures import (
    BaseStoreTestFailures,
    BaseStoreTestFailuresLimit,
)


class _OneBranch:
    """Seeds, models and tests by three commands: on one audit branch, so that each sees the last.

    Tests fail here on purpose, so nothing is ever published; the classes look at the branch.
    """

    changes: ClassVar = {"vars": {"wap_branch": "suite"}}


class TestStoreTestFailures(_OneBranch, BaseStoreTestFailures):
    pass


class TestStoreTestFailuresLimit(_OneBranch, BaseStoreTestFailuresLimit):
    pass


class TestAsInteractions(_OneBranch, basic.StoreTestFailuresAsInteractions):
    pass


class TestAsProjectLevelOff(_OneBranch, basic.StoreTestFailuresAsProjectLevelOff):
    pass


class TestAsProjectLevelView(_OneBranch, basic.StoreTestFailuresAsProjectLevelView):
    pass


class TestAsProjectLevelEphemeral(_OneBranch, basic.StoreTestFailuresAsProjectLevelEphemeral):
    pass


class TestAsGeneric(_OneBranch, basic.StoreTestFailuresAsGeneric):
    pass


class TestAsExceptions(_OneBranch, basic.StoreTestFailuresAsExceptions):
    pass
