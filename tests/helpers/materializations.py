"""A project with a node of each materialization, all over the same few rows.

Vars: ``v``, the version of the rows (amounts are ``id * v``); ``bad``, one amount is null, which
each node's test forbids; ``extra``, one more column.
"""

from __future__ import annotations

from collections.abc import Sequence

from helpers import catalogs
from helpers.catalogs import PYTHON_MODELS
from helpers.lake import Look
from helpers.project import Outcome, Project

IDS = (1, 2, 3)
_OF_PYTHON = ("table_py", "inc_py") if PYTHON_MODELS else ()
REPLACED = ("table_sql", *_OF_PYTHON, "inc_merge", "inc_overwrite", "inc_micro", "codes")
SNAPSHOTS = ("snap_time", "snap_check")
APPENDED = "inc_append"
VIEW = "view_sql"
NAMES = (*REPLACED, *SNAPSHOTS, APPENDED, VIEW)
UNTESTED = "rows_now"
"""A view without a test, that the Python models read."""

ROWS = """
    {% macro source_rows() %}
        select
            id,
            {% if var("bad", false) -%}
            if(id = 2, null, id * {{ var("v") }}) as amount,
            {%- else -%}
            id * {{ var("v") }} as amount,
            {%- endif %}
            timestamp '{{ modules.datetime.date.today().year }}-01-01 00:00:00'
                + make_dt_interval(0, {{ var("v") }}) as changed_at
            {%- if var("extra", false) %}, 'x' as extra{% endif %}
        from range(1, 4)
    {% endmacro %}
"""
SQL_MODELS = {
    UNTESTED: f"materialized='{catalogs.VIEW}'",
    VIEW: f"materialized='{catalogs.VIEW}'",
    "table_sql": "materialized='table'",
    APPENDED: "materialized='incremental', on_schema_change='append_new_columns'",
    "inc_merge": """materialized='incremental', incremental_strategy='merge', unique_key='id',
        on_schema_change='sync_all_columns'""",
    "inc_overwrite": """materialized='incremental', incremental_strategy='insert_overwrite',
        partition_by='id', on_schema_change='append_new_columns'""",
    "inc_micro": """materialized='incremental', incremental_strategy='microbatch',
        event_time='changed_at', batch_size='year',
        begin=modules.datetime.date.today().year ~ '-01-01',
        on_schema_change='append_new_columns'""",
}
FILES = {
    "macros/source_rows.sql": ROWS,
    "models/table_py.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            return dbt.ref("rows_now")
    """,
    "models/inc_py.py": """
        def model(dbt, session):
            dbt.config(
                materialized="incremental",
                incremental_strategy="merge",
                unique_key="id",
                on_schema_change="append_new_columns",
            )
            return dbt.ref("rows_now")
    """,
    "snapshots/snap_time.sql": """
        {% snapshot snap_time %}
            {{ config(strategy='timestamp', unique_key='id', updated_at='changed_at') }}
            {{ source_rows() }}
        {% endsnapshot %}
    """,
    "snapshots/snap_check.sql": """
        {% snapshot snap_check %}
            {{ config(strategy='check', unique_key='id', check_cols=['amount']) }}
            {{ source_rows() }}
        {% endsnapshot %}
    """,
    **{
        f"models/{name}.sql": f"{{{{ config({config}) }}}} {{{{ source_rows() }}}}"
        for name, config in SQL_MODELS.items()
    },
}


def project_files() -> dict[str, str]:
    """All files but the seed, whose rows :func:`write_seed` makes."""
    kinds = {"snapshots": SNAPSHOTS, "seeds": ("codes",)}
    kinds["models"] = tuple(n for n in NAMES if n not in SNAPSHOTS and n != "codes")
    lines = []
    for kind, names in kinds.items():
        lines.append(f"{kind}:")
        for name in names:
            test = f"{{not_null: {{name: {name}_amount_not_null}}}}"
            lines.append(f"  - {{name: {name}, columns: [{{name: amount, data_tests: [{test}]}}]}}")
    files = {k: v for k, v in FILES.items() if PYTHON_MODELS or not k.endswith(".py")}
    return {**files, "models/properties.yml": "\n".join(lines) + "\n"}


def build(
    project: Project, *, v: int, bad: bool = False, extra: bool = False, **more: object
) -> Outcome:
    """Build everything with the rows of version ``v``; ``more`` are vars."""
    write_seed(project, v=v, bad=bad, extra=extra)
    return project.dbt("build", v=v, bad=bad, extra=extra, **more)


def write_seed(project: Project, *, v: int, bad: bool, extra: bool) -> None:
    """Write the seed with the rows of version ``v``."""
    lines = ["id,amount" + (",extra" if extra else "")]
    for key in IDS:
        amount = "" if bad and key == 2 else str(key * v)
        lines.append(f"{key},{amount}" + (",x" if extra else ""))
    project.write({"seeds/codes.csv": "\n".join(lines) + "\n"})


def amounts(name: str, versions: Sequence[int]) -> list[int]:
    """The amounts that a reader sees in a table after these versions were published."""
    if name == APPENDED:
        return sorted((key * v for v in versions for key in IDS), key=repr)
    return sorted((key * versions[-1] for key in IDS), key=repr)


def current(name: str, look: Look) -> list[int]:
    """The amounts of a table as it is; of a snapshot, those that are valid now."""
    if name not in SNAPSHOTS:
        return list(look.values("amount"))
    return sorted((r["amount"] for r in look.rows if r["dbt_valid_to"] is None), key=repr)
