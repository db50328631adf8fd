"""A pytest plugin that takes the gate's decision away: whatever was built is published.

``pytest -p helpers.publish_everything``: the tests of the gate have to fail under it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkwap.gate.facts import BuiltNode
from sparkwap.gate.verdicts import Decision, Verdict
from sparkwap.runs import closing


def _publish_everything(nodes: Iterable[BuiltNode], *_: Any) -> Decision:
    nodes = list(nodes)
    built = tuple(n.node_id for n in nodes if n.status == "built" and n.candidate)
    verdicts = {
        n.node_id: Verdict("published" if n.node_id in built else "held", ("mutated",))
        for n in nodes
    }
    return Decision(verdicts, built, "published", failed=False)


def pytest_configure() -> None:
    """Put it in the place of the gate's own."""
    closing.decide = _publish_everything  # type: ignore[assignment]
