"""What a test must not leave behind."""

from __future__ import annotations

import pytest

from sparkwap.core import redaction


@pytest.fixture(autouse=True)
def secrets_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that tells a secret hides it in its own texts only."""
    monkeypatch.setattr(redaction, "_known", set(redaction._known))
