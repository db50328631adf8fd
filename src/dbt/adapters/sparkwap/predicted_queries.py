"""Predicts the queries of generic tests, which dbt compiles only when they begin.

Their macros are called as dbt will call them, with an effect on nothing but the text.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dbt_common.clients.jinja import get_template, render_template
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.utils.dict import deep_map_render

from dbt.adapters.sparkwap.command import DbtCommand
from dbt.adapters.sparkwap.relation import SparkWapRelation
from dbt.adapters.sparkwap.sessions import logger
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.plan.uncertain import as_jinja


class _CopiedVar:
    """dbt's `var`; a macro may change the list or mapping that it returns."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return deepcopy(self._given(*arguments, **named))

    def has_var(self, name: str) -> bool:
        """Return whether the project or the command line sets a variable."""
        return bool(self._given.has_var(name))


def _refuse(*arguments: Any, **named: Any) -> None:
    raise DbtRuntimeError("A macro has an effect besides its text.")


class PredictedQueries:
    """The queries of the tests of a command."""

    def __init__(self, command: DbtCommand, statements: StatementGuard) -> None:
        self._command = command
        self._statements = statements
        self._contexts: dict[str, dict[str, Any]] = {}
        self._templates: dict[tuple[str, bool], Any] = {}

    def of(self, node: Any) -> str | None:
        """Return the SQL that dbt will compile for a generic test; None if it is not known."""
        from dbt.clients.jinja import GENERIC_TEST_KWARGS_NAME

        # The macros look into this very context, not into a copy. What they could change is one,
        # because dbt compiles the test later.
        context = self._context(node.package_name)
        context["config"] = deepcopy(node.config)
        context["ref"] = lambda *names, **more: self._relation(node, names[-1], "nodes")
        context["source"] = lambda *names: self._relation(node, names[-1], "sources")
        call = node.raw_code.partition("}}")[0] + "}}"
        if GENERIC_TEST_KWARGS_NAME not in call:
            return None
        try:
            with self._statements.none_sent():
                context[GENERIC_TEST_KWARGS_NAME] = deep_map_render(
                    lambda value, path: self._argument(context, value, path),
                    node.test_metadata.kwargs,
                )
                return str(self._rendered(context, call)).strip()
        except Exception as error:
            logger.debug(f"the query of {node.unique_id} is not predicted: {error}")
            return None

    def _argument(self, context: dict[str, Any], value: Any, path: tuple[str | int, ...]) -> Any:
        """Return an argument of a test as dbt's ``add_rendered_test_kwargs`` renders it."""
        if not isinstance(value, str) or path == ("column_name",):
            return value
        return self._rendered(context, as_jinja(value), native=True)

    def _rendered(self, context: dict[str, Any], text: str, *, native: bool = False) -> Any:
        """Return a rendered text; the tests of a table have most texts in common."""
        key = (text, native)
        if key not in self._templates:
            self._templates[key] = get_template(text, {}, native=native)
        return render_template(self._templates[key], context)

    def _context(self, package: str) -> dict[str, Any]:
        from dbt.context.providers import generate_runtime_macro_context

        if package not in self._contexts:
            manifest = self._command.dbt_manifest()
            # A copy: dbt notes in it which macros the context calls, as if they were its code.
            macro = deepcopy(manifest.macros["macro.dbt_sparkwap.wap_now"])
            context = generate_runtime_macro_context(macro, self._command.config, manifest, package)
            context["var"] = _CopiedVar(context["var"])
            # A message would come twice.
            context |= dict.fromkeys(("log", "print", "write"), _refuse)
            context["exceptions"] = {**context["exceptions"], "warn": _refuse}
            self._contexts[package] = context
        return self._contexts[package]

    def _relation(self, test: Any, name: str, of: str) -> Any:
        """Return the relation of the parent with this name."""
        nodes = getattr(self._command.dbt_manifest(), of)
        (parent,) = (
            nodes[key] for key in test.depends_on.nodes if key in nodes and nodes[key].name == name
        )
        return SparkWapRelation.create_from(self._command.config, parent)
