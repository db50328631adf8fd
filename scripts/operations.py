"""Generates macros, their docs and the reference of the run-operations from their dataclasses.

A unit test fails if the files are outdated; `python scripts/operations.py` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from sparkwap.cli.operations import ALL
from sparkwap.core.arguments import Arguments

ROOT = Path(__file__).resolve().parents[1]
MACROS = ROOT / "macros/wap/operations/wap_operations.sql"
MACRO_DOCS = ROOT / "macros/wap/operations/_operations__macros.yml"
REFERENCE = ROOT / "docs/reference.md"
BEGIN, END = "<!-- operations: scripts/operations.py -->\n", "<!-- end of operations -->\n"
WIDTH = 100

HEAD = """\
{#-
    The gate by hand: dbt run-operation <name> --args '{...}'. Written by scripts/operations.py.
    Unknown arguments come in through `kwargs`, so that the answer can name the legal ones.
-#}
"""
TAIL = """
{% macro _wap_operation(name, arguments) %}
    {%- for line in adapter.wap.operation(name, arguments) -%}
        {%- do log(line, info=true) -%}
    {%- endfor -%}
{% endmacro %}
"""


def macros() -> str:
    """Return the macros for dbt."""
    return "\n".join([HEAD, *map(_macro, ALL)]) + TAIL


def _macro(operation: type[Arguments]) -> str:
    names = [field.name for field in fields(operation)]
    signature = _wrapped("", [f"{name}=none" for name in names], ")")
    given = _wrapped("    ", ["kwargs", *(f"{name}={name}" for name in names)], ")) -%}")
    return (
        f"{{#- {operation.__doc__} -#}}\n"
        f"{{% macro {operation.name}({signature} %}}\n"
        f'    {{%- do _wap_operation("{operation.name}", dict({given}\n'
        "{% endmacro %}\n"
    )


def _wrapped(indent: str, parts: list[str], end: str) -> str:
    """Return the parts in one line, or in several lines if they are too long."""
    line = ", ".join(parts)
    if len(line) < WIDTH - 45:
        return line + end
    lines, inner = [""], f"{indent}    "
    for part in parts:
        if len(lines[-1]) + len(part) > WIDTH - 10:
            lines.append("")
        lines[-1] += f"{part}, "
    text = "\n".join(inner + line.rstrip() for line in lines)
    return f"\n{text.removesuffix(',')}\n{indent}{end}"


def macro_docs() -> str:
    """Return dbt's docs of the macros."""
    lines = ["# Written by scripts/operations.py.", "macros:"]
    for operation in ALL:
        lines += [f"  - name: {operation.name}", f"    description: {_quoted(operation.__doc__)}"]
        types = operation.types()
        # dbt refuses an empty value.
        lines.append(f"    arguments:{'' if types else ' []'}")
        for name, what in operation.legal():
            lines.append(f"      - name: {name}")
            lines.append(f"        type: {types[name]}")
            lines.append(f"        description: {_quoted(what)}")
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return the tables of docs/reference.md."""
    return "\n".join(line for operation in ALL for line in _table(operation))


def _table(operation: type[Arguments]) -> Iterator[str]:
    yield f"### `{operation.name}`"
    yield f"{operation.__doc__}\n"
    if not fields(operation):
        yield "It takes no arguments.\n"
        return
    yield "| argument | type | |\n|---|---|---|"
    types = operation.types()
    for name, what in operation.legal():
        yield f"| `{name}` | {types[name]} | {what} |"
    yield ""


def _quoted(text: str | None) -> str:
    return json.dumps(text)


def reference_page(page: str) -> str:
    """Return the page with new tables."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{reference()}{END}{rest.split(END)[1]}"


def main() -> None:
    MACROS.write_text(macros())
    MACRO_DOCS.write_text(macro_docs())
    REFERENCE.write_text(reference_page(REFERENCE.read_text()))


if __name__ == "__main__":
    main()
