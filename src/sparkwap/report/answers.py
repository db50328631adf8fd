"""The answers to the queries of Elementary's report.

Elementary keeps its own tables, and reads them by macros of its dbt project, such as
``get_test_results``. Here a function answers each macro from dbt's manifest and the ledger, without
Spark, dbt and Elementary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkwap.report.artifacts import (
    artifacts,
    coverage,
    exposures,
    freshness,
    lineage,
    singular_tests,
    snapshots,
)
from sparkwap.report.facts import ReportFacts
from sparkwap.report.results import (
    invocations,
    latest_runs,
    model_runs,
    test_results,
    tests,
)


def answers(facts: ReportFacts) -> dict[str, Any]:
    """Return all answers, by the names of Elementary's macros."""
    results = test_results(facts)
    functions: dict[str, Callable[[ReportFacts], Any]] = {
        "get_models": lambda f: artifacts(f, "model"),
        "get_seeds": lambda f: artifacts(f, "seed"),
        "get_snapshots": snapshots,
        "get_sources": lambda f: artifacts(f, "source"),
        "get_exposures": exposures,
        "get_singular_tests": singular_tests,
        "get_models_runs": model_runs,
        "get_dbt_models_test_coverage": coverage,
        "get_tests": lambda f: tests(f, results),
        "get_test_results": lambda _: results,
        "get_source_freshness_results": freshness,
        "get_nodes_depends_on_nodes": lineage,
        "get_models_latest_invocation": latest_runs,
        "get_models_latest_invocations_data": invocations,
        "get_test_last_invocation": lambda f: invocations(f)[-1:],
        "get_latest_invocation": lambda f: [{"project_name": f.project}],
        "get_adapter_type_and_unique_id": lambda f: ["spark", f.database],
    }
    return {name: answer(facts) for name, answer in functions.items()}
