"""What holds for all unit tests: no test is timed, and none leaves anything behind."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from sparkwap.core import redaction

# A busy machine is no fault of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def secrets_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that tells a secret hides it in its own texts only."""
    monkeypatch.setattr(redaction, "_known", set(redaction._known))
