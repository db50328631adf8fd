"""The end of a run-operation for programs."""

from dbt.adapters.sparkwap.operations import _end
from sparkwap.core.command_end import CommandEnd


def test_an_error_after_the_result_is_not_hidden() -> None:
    done, held = CommandEnd("published", {"x": 1}), CommandEnd("held", {"x": 1})  # type: ignore[arg-type]
    assert _end("wap_rollback", [done], ["no"], "failed", "no catalog").outcome == "failed"
    assert _end("wap_publish", [held], ["no"], "failed", "the summary").outcome == "held"
    assert _end("wap_publish", [done], ["yes"]).outcome == "published"
    assert _end("wap_accept", [], ["yes"]).outcome == "done"
    assert _end("wap_accept", [], ["no"], "usage", "no").outcome == "usage"
