"""The Spark session of a comparison."""

from __future__ import annotations

from sparkwap.diff.session import error_class


def test_the_class_of_an_error_has_no_values() -> None:
    assert error_class(ValueError("anna")) == "ValueError"
    assert error_class(RuntimeError("[CAST_INVALID_INPUT] 'anna'")) == (
        "Spark reported CAST_INVALID_INPUT"
    )
